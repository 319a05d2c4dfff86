"""The twin beside the testbed: what is compared, when an error counts as small, pages that show it."""
