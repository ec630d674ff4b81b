"""The `pgsched` program; `python -m pgsched` is the same.

The rule: a short command ends before there is garbage worth collecting. Looking for it among what is imported, and once
more at the end, took a quarter of the time of `pgsched status`.
"""

import gc

GC_THRESHOLD = 200_000  # more containers than a short command makes


def main() -> None:
    """Run the command line of this process, to its exit."""
    gc.set_threshold(GC_THRESHOLD)
    from pgsched import cli

    try:
        cli.main()
    finally:
        gc.freeze()


if __name__ == "__main__":
    main()
