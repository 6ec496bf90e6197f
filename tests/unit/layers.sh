#!/bin/sh
# Who may include whom (design.md §4), read from the compiler's own dependency files: they list the transitive includes, so an
# indirect leak is caught too. A line: room, rooms it may include, folders of outside headers that are its own.
set -u
table='
ssh/base   :                                                                  :
ssh/wire   : ssh/base                                                         :
ssh/link   : ssh/base ssh/wire                                                : event2 openssl xxhash
ssh/session : ssh/base ssh/wire ssh/link profiles                             : libssh2 zstd zlib.h
ssh/launch : ssh/base ssh/wire ssh/link ssh/session profiles                  :
profiles   : ssh/base                                                         : ini.h
gpu/math   : ssh/base                                                         :
gpu/cpu    : ssh/base gpu/math                                                : dnnl omp.h
gpu/model  : ssh/base gpu/math                                                : jansson pcre2 utf8proc
gpu/train  : ssh/base ssh/wire ssh/link profiles gpu/math gpu/model           : zstd
scheduler  : ssh/base ssh/wire ssh/link profiles                              : sqlite3.h jansson
console    : ssh/base ssh/wire ssh/link ssh/session ssh/launch profiles       : jansson curses
'
outside='event2/ openssl/ xxhash ini.h dnnl omp.h jansson sqlite3.h curses libssh2 cuda nccl zstd pcre2 utf8proc'
bad=0 seen=0
while IFS=: read -r room may own; do
    room=$(echo "$room" | tr -d ' ')
    [ -n "$room" ] || continue
    for file in "$O/obj/$room"/*.d; do
        [ -e "$file" ] || continue
        seen=$((seen + 1))
        # The first rule only: -MP adds empty rules for headers behind it.
        for path in $(sed -e 's/\\$//' -e 's/^[^:]*: *//' -e '/^$/q' "$file" | tr -s ' ' '\n' | sed 's|^\./||' | sort -u); do
            case $path in
            /*)
                for folder in $outside; do
                    case $path in *"$folder"*) ;; *) continue ;; esac
                    allowed=0
                    for mine in $own; do case $path in *"$mine"*) allowed=1 ;; esac; done
                    [ $allowed = 1 ] || { echo "$file: $room may not include $path"; bad=1; }
                done ;;
            */*)
                from=$(dirname "$path")
                case " $room $may " in
                *" $from "*) ;;
                *) echo "$file: $room may not include $path"; bad=1 ;;
                esac ;;
            esac
        done
    done
done <<EOF
$table
EOF
[ "$seen" -gt 0 ] || { echo "no dependency files under $O/obj: nothing was checked"; exit 1; }
exit $bad
