"""The `pgsched` program; `python -m pgsched` is the same."""

from pgsched import gc_tuning


def main() -> None:
    """Run the command line of this process, to its exit."""
    gc_tuning.begin()
    from pgsched import cli

    try:
        cli.main()
    finally:
        gc_tuning.end()


if __name__ == "__main__":
    main()
