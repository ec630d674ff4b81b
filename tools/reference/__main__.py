"""Write the generated pages of docs/reference: `python -m tools.reference`."""

from __future__ import annotations

from tools.reference import FOLDER, PAGES


def main() -> None:
    """Write each page, and print its path."""
    for name, text in PAGES.items():
        path = FOLDER / name
        path.write_text(text(), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
