"""`python -m studies.experiments PAGE`: makes a page of docs/results again, `containers` or `fabric`."""

import sys

from studies.experiments.results import PAGES, main

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PAGES:
        sys.exit(f"usage: python -m studies.experiments {'|'.join(PAGES)}")
    main(sys.argv[1])
