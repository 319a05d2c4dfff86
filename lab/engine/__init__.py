"""Where units of work are run: the processes of this machine, or workers of Dask."""
