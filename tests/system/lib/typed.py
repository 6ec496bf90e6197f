"""typed.py REPLY PROGRAM WORD...: runs a program on a terminal where somebody types. REPLY is Python that defines reply(new, answers): the text
to type or None, of the bytes shown since the last reply and the words of $ANSWERS. What was shown goes to stdout."""
import os, pty, re, select, sys, time

command, answers = sys.argv[2:], os.environ["ANSWERS"].split()
exec(sys.argv[1])
pid, fd = pty.fork()
if pid == 0:
    os.execv(command[0], command)
shown, seen, until = b"", 0, time.time() + 150
while time.time() < until:
    if select.select([fd], [], [], 1)[0]:
        try:
            data = os.read(fd, 4096)
        except OSError:
            break
        if not data:
            break
        shown += data
    text = reply(shown[seen:], answers)
    if text is not None:
        time.sleep(0.3)
        seen = len(shown)
        os.write(fd, text.encode() + b"\n")
else:
    os.kill(pid, 9)
sys.stdout.buffer.write(shown)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
