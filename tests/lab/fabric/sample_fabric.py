"""A question about a fabric, small enough for tests."""

SENDS = {
    "name": "edge",
    "title": "A few sends",
    "fabric": {
        "topology": {"hosts": 2},
        "values": {"queue_pair": {"timeout": 14}},
        "sends": {"messages": 40, "message_bytes": 40_000},
    },
    "vary": {"fabric.faults.kind": ["none", "single"]},
    "policies": ["thorn", "none"],
    "seeds": [0, 1],
}
