"""`python -m lab.experiments`: makes docs/results again."""

from lab.experiments.results import main

if __name__ == "__main__":
    main()
