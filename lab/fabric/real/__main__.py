import sys, time
from pathlib import Path
from lab.fabric.real.campaign import measure, watch
from lab.fabric.real.settings import setting
from lab.fabric.real.store import Store

what, name, minutes, root, *keys = sys.argv[1:]
until = time.monotonic() + float(minutes) * 60
store = Store(Path(root))
for each in keys:
    key, _, n = each.partition(":")
    if what == "measure":
        measure(setting(key), int(n), store, name, until, print)
    else:
        print(watch(setting(key), float(n), store, name))
