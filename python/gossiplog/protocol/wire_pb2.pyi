from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Node(_message.Message):
    __slots__ = ("level", "key", "hash")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    level: int
    key: bytes
    hash: bytes
    def __init__(self, level: _Optional[int] = ..., key: _Optional[bytes] = ..., hash: _Optional[bytes] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("get_root", "get_node", "get_children", "get_values")
    class GetRoot(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class GetNode(_message.Message):
        __slots__ = ("level", "key")
        LEVEL_FIELD_NUMBER: _ClassVar[int]
        KEY_FIELD_NUMBER: _ClassVar[int]
        level: int
        key: bytes
        def __init__(self, level: _Optional[int] = ..., key: _Optional[bytes] = ...) -> None: ...
    class GetChildren(_message.Message):
        __slots__ = ("level", "key", "after")
        LEVEL_FIELD_NUMBER: _ClassVar[int]
        KEY_FIELD_NUMBER: _ClassVar[int]
        AFTER_FIELD_NUMBER: _ClassVar[int]
        level: int
        key: bytes
        after: bytes
        def __init__(self, level: _Optional[int] = ..., key: _Optional[bytes] = ..., after: _Optional[bytes] = ...) -> None: ...
    class GetValues(_message.Message):
        __slots__ = ("keys",)
        KEYS_FIELD_NUMBER: _ClassVar[int]
        keys: _containers.RepeatedScalarFieldContainer[bytes]
        def __init__(self, keys: _Optional[_Iterable[bytes]] = ...) -> None: ...
    GET_ROOT_FIELD_NUMBER: _ClassVar[int]
    GET_NODE_FIELD_NUMBER: _ClassVar[int]
    GET_CHILDREN_FIELD_NUMBER: _ClassVar[int]
    GET_VALUES_FIELD_NUMBER: _ClassVar[int]
    get_root: Request.GetRoot
    get_node: Request.GetNode
    get_children: Request.GetChildren
    get_values: Request.GetValues
    def __init__(self, get_root: _Optional[_Union[Request.GetRoot, _Mapping]] = ..., get_node: _Optional[_Union[Request.GetNode, _Mapping]] = ..., get_children: _Optional[_Union[Request.GetChildren, _Mapping]] = ..., get_values: _Optional[_Union[Request.GetValues, _Mapping]] = ...) -> None: ...

class Response(_message.Message):
    __slots__ = ("get_root", "get_node", "get_children", "get_values", "abort")
    class GetRoot(_message.Message):
        __slots__ = ("root",)
        ROOT_FIELD_NUMBER: _ClassVar[int]
        root: Node
        def __init__(self, root: _Optional[_Union[Node, _Mapping]] = ...) -> None: ...
    class GetNode(_message.Message):
        __slots__ = ("node",)
        NODE_FIELD_NUMBER: _ClassVar[int]
        node: Node
        def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ...) -> None: ...
    class GetChildren(_message.Message):
        __slots__ = ("children",)
        CHILDREN_FIELD_NUMBER: _ClassVar[int]
        children: _containers.RepeatedCompositeFieldContainer[Node]
        def __init__(self, children: _Optional[_Iterable[_Union[Node, _Mapping]]] = ...) -> None: ...
    class GetValues(_message.Message):
        __slots__ = ("values",)
        VALUES_FIELD_NUMBER: _ClassVar[int]
        values: _containers.RepeatedScalarFieldContainer[bytes]
        def __init__(self, values: _Optional[_Iterable[bytes]] = ...) -> None: ...
    class Abort(_message.Message):
        __slots__ = ("cooldown",)
        COOLDOWN_FIELD_NUMBER: _ClassVar[int]
        cooldown: int
        def __init__(self, cooldown: _Optional[int] = ...) -> None: ...
    GET_ROOT_FIELD_NUMBER: _ClassVar[int]
    GET_NODE_FIELD_NUMBER: _ClassVar[int]
    GET_CHILDREN_FIELD_NUMBER: _ClassVar[int]
    GET_VALUES_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    get_root: Response.GetRoot
    get_node: Response.GetNode
    get_children: Response.GetChildren
    get_values: Response.GetValues
    abort: Response.Abort
    def __init__(self, get_root: _Optional[_Union[Response.GetRoot, _Mapping]] = ..., get_node: _Optional[_Union[Response.GetNode, _Mapping]] = ..., get_children: _Optional[_Union[Response.GetChildren, _Mapping]] = ..., get_values: _Optional[_Union[Response.GetValues, _Mapping]] = ..., abort: _Optional[_Union[Response.Abort, _Mapping]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("insert", "update")
    class Insert(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: bytes
        value: bytes
        def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...
    class Update(_message.Message):
        __slots__ = ("heads",)
        HEADS_FIELD_NUMBER: _ClassVar[int]
        heads: _containers.RepeatedScalarFieldContainer[bytes]
        def __init__(self, heads: _Optional[_Iterable[bytes]] = ...) -> None: ...
    INSERT_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    insert: Event.Insert
    update: Event.Update
    def __init__(self, insert: _Optional[_Union[Event.Insert, _Mapping]] = ..., update: _Optional[_Union[Event.Update, _Mapping]] = ...) -> None: ...

class Refusals(_message.Message):
    __slots__ = ("refused", "more")
    class Refusal(_message.Message):
        __slots__ = ("key", "reason")
        KEY_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        key: bytes
        reason: str
        def __init__(self, key: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    refused: _containers.RepeatedCompositeFieldContainer[Refusals.Refusal]
    more: int
    def __init__(self, refused: _Optional[_Iterable[_Union[Refusals.Refusal, _Mapping]]] = ..., more: _Optional[int] = ...) -> None: ...
