"""`python -m cufall_py` is `cufall`."""

from cufall_py.cli import main

if __name__ == "__main__":
    main()
