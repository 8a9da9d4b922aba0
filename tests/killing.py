"""A process that dies in the middle of its work, for the tests of what it leaves behind."""

import os
import signal


def run_until_killed(start, owner, name: str, call: int) -> None:
    """Runs `start` in a child process that kills itself at that call of owner.name, in the middle of the work."""
    child = os.fork()
    if child == 0:
        original, calls = getattr(owner, name), [0]

        def deadly(*arguments, **options):
            calls[0] += 1
            if calls[0] == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)

        setattr(owner, name, deadly)
        try:
            start()
        finally:
            os._exit(0)  # not reached by a process that was killed
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the run ended before it was killed: the test asks for a call that never comes"
    assert os.WTERMSIG(status) == signal.SIGKILL
