# Helpers for tests of the screen: . tests/tui/lib/tui.sh — a private tmux server, keys in, pictures out. Needs common.sh first.
command -v tmux >/dev/null || skip "tmux is not here; it would have been the terminal of the screen"
server=$TMP/tmux.0 terminals=0
tui() { tmux -S "$server" -f /dev/null "$@"; }

# open_terminal COLUMNS ROWS COMMAND : in a pane of that size; what the command says stays when it ends
open_terminal() {
    tui kill-server 2>/dev/null
    terminals=$((terminals + 1)) # a server of its own: the last one may still be ending
    server=$TMP/tmux.$terminals
    tui new-session -d -x "$1" -y "$2" "$3" || skip "tmux cannot start here; it would have been the terminal of the screen"
    tui set-option -g remain-on-exit on >/dev/null
    tui set-option -g status off >/dev/null
    tui resize-window -x "$1" -y "$2" 2>/dev/null
}
close_terminal() { tui kill-server 2>/dev/null; }
press() { for key; do tui send-keys -- "$key"; done; }
type_text() { tui send-keys -l -- "$1"; }
picture() { tui capture-pane -p | sed 's/ *$//'; }
coloured() { tui capture-pane -p -e; }
shows() { picture | grep -qF -- "$1"; }
hides() { ! shows "$1"; }
# wait_shows SECONDS TEXT
wait_shows() { wait_for "$1" shows "$2" || fail "'$2' did not come on the screen:
$(picture)"; }
wait_hides() { wait_for "$1" hides "$2" || fail "'$2' stays on the screen:
$(picture)"; }

trap 'status=$?; tui kill-server 2>/dev/null; (exit $status); clean_up' EXIT
