from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Report(_message.Message):
    __slots__ = ("applied", "round_trip_ns", "actual_ids", "actual_bytes", "hello", "joined", "left", "held", "shrunk", "session", "actual_cpu_ids", "actual_cores")
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    ROUND_TRIP_NS_FIELD_NUMBER: _ClassVar[int]
    ACTUAL_IDS_FIELD_NUMBER: _ClassVar[int]
    ACTUAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    SHRUNK_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ACTUAL_CPU_IDS_FIELD_NUMBER: _ClassVar[int]
    ACTUAL_CORES_FIELD_NUMBER: _ClassVar[int]
    applied: int
    round_trip_ns: int
    actual_ids: _containers.RepeatedScalarFieldContainer[int]
    actual_bytes: _containers.RepeatedScalarFieldContainer[int]
    hello: Hello
    joined: Joined
    left: Left
    held: Held
    shrunk: Shrunk
    session: int
    actual_cpu_ids: _containers.RepeatedScalarFieldContainer[int]
    actual_cores: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, applied: _Optional[int] = ..., round_trip_ns: _Optional[int] = ..., actual_ids: _Optional[_Iterable[int]] = ..., actual_bytes: _Optional[_Iterable[int]] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., joined: _Optional[_Union[Joined, _Mapping]] = ..., left: _Optional[_Union[Left, _Mapping]] = ..., held: _Optional[_Union[Held, _Mapping]] = ..., shrunk: _Optional[_Union[Shrunk, _Mapping]] = ..., session: _Optional[int] = ..., actual_cpu_ids: _Optional[_Iterable[int]] = ..., actual_cores: _Optional[_Iterable[float]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("version", "name", "instance", "host_cores")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    HOST_CORES_FIELD_NUMBER: _ClassVar[int]
    version: int
    name: str
    instance: int
    host_cores: float
    def __init__(self, version: _Optional[int] = ..., name: _Optional[str] = ..., instance: _Optional[int] = ..., host_cores: _Optional[float] = ...) -> None: ...

class Joined(_message.Message):
    __slots__ = ("containers", "failed", "complete", "more")
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    containers: _containers.RepeatedCompositeFieldContainer[Present]
    failed: _containers.RepeatedCompositeFieldContainer[Failed]
    complete: bool
    more: bool
    def __init__(self, containers: _Optional[_Iterable[_Union[Present, _Mapping]]] = ..., failed: _Optional[_Iterable[_Union[Failed, _Mapping]]] = ..., complete: _Optional[bool] = ..., more: _Optional[bool] = ...) -> None: ...

class Present(_message.Message):
    __slots__ = ("name", "watch", "incarnation", "running", "quota_cores", "limit_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WATCH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    QUOTA_CORES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    watch: int
    incarnation: int
    running: bool
    quota_cores: float
    limit_bytes: int
    def __init__(self, name: _Optional[str] = ..., watch: _Optional[int] = ..., incarnation: _Optional[int] = ..., running: _Optional[bool] = ..., quota_cores: _Optional[float] = ..., limit_bytes: _Optional[int] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("name", "problem")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    name: str
    problem: str
    def __init__(self, name: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class Left(_message.Message):
    __slots__ = ("ids", "reason")
    IDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    reason: str
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., reason: _Optional[str] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("ids", "needed_bytes")
    IDS_FIELD_NUMBER: _ClassVar[int]
    NEEDED_BYTES_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    needed_bytes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., needed_bytes: _Optional[_Iterable[int]] = ...) -> None: ...

class Shrunk(_message.Message):
    __slots__ = ("request", "ids", "limit_bytes")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    request: int
    ids: _containers.RepeatedScalarFieldContainer[int]
    limit_bytes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request: _Optional[int] = ..., ids: _Optional[_Iterable[int]] = ..., limit_bytes: _Optional[_Iterable[int]] = ...) -> None: ...

class Order(_message.Message):
    __slots__ = ("number", "caused_ns", "welcome", "named", "cpu", "memory", "restart", "kill", "reclaim", "rejected")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CAUSED_NS_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    NAMED_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    RESTART_FIELD_NUMBER: _ClassVar[int]
    KILL_FIELD_NUMBER: _ClassVar[int]
    RECLAIM_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    number: int
    caused_ns: int
    welcome: Welcome
    named: _containers.RepeatedCompositeFieldContainer[Named]
    cpu: Limits
    memory: Limits
    restart: _containers.RepeatedScalarFieldContainer[int]
    kill: _containers.RepeatedScalarFieldContainer[int]
    reclaim: _containers.RepeatedCompositeFieldContainer[Reclaim]
    rejected: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, number: _Optional[int] = ..., caused_ns: _Optional[int] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., named: _Optional[_Iterable[_Union[Named, _Mapping]]] = ..., cpu: _Optional[_Union[Limits, _Mapping]] = ..., memory: _Optional[_Union[Limits, _Mapping]] = ..., restart: _Optional[_Iterable[int]] = ..., kill: _Optional[_Iterable[int]] = ..., reclaim: _Optional[_Iterable[_Union[Reclaim, _Mapping]]] = ..., rejected: _Optional[_Iterable[str]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("session", "key", "telemetry_port", "traps_oom", "reclaim_interval_s", "reclaim_margin_bytes", "containers", "watches", "more")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TELEMETRY_PORT_FIELD_NUMBER: _ClassVar[int]
    TRAPS_OOM_FIELD_NUMBER: _ClassVar[int]
    RECLAIM_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    RECLAIM_MARGIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    WATCHES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    session: int
    key: bytes
    telemetry_port: int
    traps_oom: bool
    reclaim_interval_s: float
    reclaim_margin_bytes: int
    containers: _containers.RepeatedCompositeFieldContainer[Wanted]
    watches: _containers.RepeatedCompositeFieldContainer[Watched]
    more: bool
    def __init__(self, session: _Optional[int] = ..., key: _Optional[bytes] = ..., telemetry_port: _Optional[int] = ..., traps_oom: _Optional[bool] = ..., reclaim_interval_s: _Optional[float] = ..., reclaim_margin_bytes: _Optional[int] = ..., containers: _Optional[_Iterable[_Union[Wanted, _Mapping]]] = ..., watches: _Optional[_Iterable[_Union[Watched, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class Wanted(_message.Message):
    __slots__ = ("name", "command", "environment", "attach", "runtime")
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class AttachEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    name: str
    command: _containers.RepeatedScalarFieldContainer[str]
    environment: _containers.ScalarMap[str, str]
    attach: _containers.ScalarMap[str, str]
    runtime: str
    def __init__(self, name: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., environment: _Optional[_Mapping[str, str]] = ..., attach: _Optional[_Mapping[str, str]] = ..., runtime: _Optional[str] = ...) -> None: ...

class Watched(_message.Message):
    __slots__ = ("parent", "pattern")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    parent: str
    pattern: str
    def __init__(self, parent: _Optional[str] = ..., pattern: _Optional[str] = ...) -> None: ...

class Named(_message.Message):
    __slots__ = ("name", "id", "app", "request_cores")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    REQUEST_CORES_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: int
    app: int
    request_cores: float
    def __init__(self, name: _Optional[str] = ..., id: _Optional[int] = ..., app: _Optional[int] = ..., request_cores: _Optional[float] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("ids", "cores", "bytes", "reasons")
    IDS_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    cores: _containers.RepeatedScalarFieldContainer[float]
    bytes: _containers.RepeatedScalarFieldContainer[int]
    reasons: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., cores: _Optional[_Iterable[float]] = ..., bytes: _Optional[_Iterable[int]] = ..., reasons: _Optional[_Iterable[int]] = ...) -> None: ...

class Reclaim(_message.Message):
    __slots__ = ("request", "app")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    request: int
    app: int
    def __init__(self, request: _Optional[int] = ..., app: _Optional[int] = ...) -> None: ...
