"""python -m pads"""

from pads.cli import main

if __name__ == "__main__":
    main()
