"""``python -m api`` is the program `rejoinder`."""

from __future__ import annotations

from api.main import main

if __name__ == "__main__":
    main()
