"""Every reader of text and bytes that others wrote, tried with damaged input.

`python -m tests.fuzz --seconds 60` tries all readers in child processes. The ordinary suite replays
the corpus.
"""
