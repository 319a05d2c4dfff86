"""Every reader of foreign text and bytes, tried with damaged input.

`python -m tests.fuzz --seconds 60` tries all readers in child processes. The ordinary suite replays
the corpus.
"""
