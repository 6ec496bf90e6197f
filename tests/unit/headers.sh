#!/bin/sh
# Every header compiles alone.
exec make --no-print-directory O="$O" SAN="$SAN" CC="$CC" headers
