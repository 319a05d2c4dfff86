"""A Chakra execution trace of one rank, small enough to be played by hand."""

import gzip

from google.protobuf.json_format import MessageToJson

from traces.readers.chakra_pb2 import Attribute, GlobalMetadata, Node, NodeType

GROUPS = (
    '[{"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 8, "group_count": 2}, '
    '{"pg_name": "1", "pg_desc": "pairs", "ranks": [2, 3], "group_size": 2, "group_count": 2}]'
)


def attributes(**values):
    kinds = {bool: "bool_val", int: "int64_val", str: "string_val"}
    return [Attribute(name=name, **{kinds[type(value)]: value}) for name, value in values.items()]


def node(number, name, kind="COMP_NODE", duration_us=0, deps=(), types="", **told):
    made = Node(id=number, name=name, type=NodeType.Value(kind), duration_micros=duration_us, data_deps=deps)
    made.inputs.types = types
    made.attr.extend(attributes(**told))
    return made


def collective(number, kind, duration_us, deps, size, group, types=""):
    name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    told = {"is_cpu_op": False, "stream": 20, "comm_type": kind, "comm_size": size, "pg_name": group}
    return node(number, name, "COMM_COLL_NODE", duration_us, deps, types, **told)


def step():
    """One step: host operators on thread 1 start kernels on stream 7, and NCCL's on stream 20."""
    groups = node(100, "## process_group:init ##", "METADATA_NODE")
    groups.inputs.values = f"['{GROUPS}']"
    gpu = {"is_cpu_op": False, "stream": 7}
    return [
        groups,
        node(1, "aten::mm", duration_us=10, is_cpu_op=True, tid=1),
        node(2, "sgemm", duration_us=50, deps=[1], **gpu),
        node(3, "c10d::allreduce_", duration_us=10, deps=[1], is_cpu_op=True, tid=1),
        collective(4, 0, 40, [3], 4000, "0", "['GenericList[Tensor(c10::BFloat16)]', 'Int']"),
        node(5, "sgemm", duration_us=20, deps=[3], **gpu),
        collective(6, 2, 5, [5], 40, "1"),
    ]


def framed(messages):
    """Return messages as Chakra writes them: each behind its length."""
    parts = []
    for message in messages:
        data = message if isinstance(message, bytes) else message.SerializeToString()
        length, head = len(data), b""
        while length > 0x7F:
            head, length = head + bytes([length & 0x7F | 0x80]), length >> 7
        parts.append(head + bytes([length]) + data)
    return b"".join(parts)


def written(path, nodes, version="0.0.4"):
    """Write the nodes: as JSON, packed, or as messages, by the file's suffix."""
    messages = [GlobalMetadata(version=version), *nodes]
    data = framed(messages)
    if path.suffix == ".json":
        data = "".join(map(MessageToJson, messages)).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path
