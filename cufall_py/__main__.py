"""Entry of the `cufall` command, which is also `python -m cufall_py`."""

import os
import signal


def main() -> None:
    """A Ctrl-C while the rest is being loaded ends quietly; from then on the command line answers for signals."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from cufall_py.cli import main

    main()


if __name__ == "__main__":
    main()
