"""The `pgsched` program; `python -m pgsched` is the same."""

from pgsched import gc_tuning


def main() -> None:
    """Run the command line of this process, to its exit."""
    gc_tuning.tune_for_command()
    from pgsched import cli

    try:
        cli.main()
    finally:
        gc_tuning.skip_last_collection()


if __name__ == "__main__":
    main()
