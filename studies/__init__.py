"""The pages of docs/results: definitions, figures and verdicts. Not installed, and imported by nothing."""
