# Runs the text of a command in the state that the last command left, and saves its state. This script has a namespace of its
# own: `__main__` belongs to the session. For Python 3.8 and later, with only the standard library.

import __future__
import _ast as ast
import builtins
import functools
import importlib
import io
import marshal
import os
import pickle
import sys
import types

MAIN = sys.modules["__main__"]
# Set by the interpreter in every `__main__`.
OWN = {"__name__", "__doc__", "__package__", "__loader__", "__spec__", "__builtins__", "__annotations__", "__cached__", "__file__"}
MISSING = object()
# The recursion limit of pickling, some 2 MiB of the stack: it recurses in C, where a higher limit may crash the interpreter.
MOST_DEPTH = 10000


# Pickling. Functions (with code, closure and defaults) and classes that belong to the session are pickled by value, the rest
# as pickle does. `rebuild_...` unpickles.


def is_importable(thing):
    """Whether it can be imported by its name from another module than the session's."""
    name, module = getattr(thing, "__qualname__", None), getattr(thing, "__module__", None)
    module = sys.modules.get(module) if isinstance(module, str) else None
    if module is None or module is MAIN or not isinstance(name, str):
        return False
    for part in name.split("."):
        module = getattr(module, part, MISSING)
    return module is thing


def loaded(module, name):
    """An attribute of a module that is already imported: without the import the session cannot have such objects."""
    return getattr(sys.modules.get(module), name, None)


def rebuild_module(name):
    return importlib.import_module(name)


def rebuild_function(code, space, name, closure):
    space = importlib.import_module(space).__dict__ if isinstance(space, str) else space
    return types.FunctionType(marshal.loads(code), space, name, None, closure)


def space_of(function):
    """The globals of a function: the session's globals, the name of a module, or another dictionary."""
    space = function.__globals__
    if space is MAIN.__dict__:
        return space
    # Not `__module__`: decorators set that to the module of the wrapped function.
    name = space.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is not None and module.__dict__ is space:
        return name
    return space


def set_function(function, state):
    for name, value in state.items():
        if name == "__dict__":
            function.__dict__.update(value)
        elif value is not None:
            setattr(function, name, value)


def reduce_function(function):
    names = ["__qualname__", "__module__", "__doc__", "__defaults__", "__kwdefaults__", "__annotations__", "__dict__"]
    state = {name: getattr(function, name) for name in names}
    if sys.version_info >= (3, 14):
        state["__annotate__"] = function.__annotate__
        del state["__annotations__"]
    if getattr(function, "__type_params__", ()):
        state["__type_params__"] = function.__type_params__
    code = marshal.dumps(function.__code__)
    return rebuild_function, (code, space_of(function), function.__name__, function.__closure__), state, None, None, set_function


def rebuild_cell():
    return types.CellType()


def set_cell(cell, state):
    cell.cell_contents = state[0]


def reduce_cell(cell):
    try:
        return rebuild_cell, (), (cell.cell_contents,), None, None, set_cell
    except ValueError:
        return rebuild_cell, ()


def foreign(metaclass):
    """The nearest metaclass outside the session: rebuilding a class must not run code of the session."""
    return next(base for base in metaclass.__mro__ if base is type or is_importable(base))


def quiet(bases):
    """Removes `__init_subclass__` from classes of the session; returns what is needed to restore it."""
    found = []
    for base in {ancestor for base in bases for ancestor in base.__mro__}:
        hook = base.__dict__.get("__init_subclass__")
        if hook is not None and not is_importable(base):
            found.append((base, hook))
            type.__setattr__(base, "__init_subclass__", classmethod(lambda cls, **keywords: None))
    return found


def rebuild_class(metaclass, name, bases, namespace):
    hooks = quiet(bases)
    try:
        return foreign(metaclass).__new__(metaclass, name, bases, dict(namespace))
    finally:
        for base, hook in hooks:
            type.__setattr__(base, "__init_subclass__", hook)


def rebuild_enum(metaclass, name, bases, namespace, members):
    body = metaclass.__prepare__(name, bases)
    for key, value in {**namespace, **members}.items():
        body[key] = value
    return foreign(metaclass).__new__(metaclass, name, bases, body)


def set_class(cls, state):
    for name, value in state.items():
        type.__setattr__(cls, name, value)


def reduce_class(cls):
    namespace = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    state = dict(cls.__dict__)
    left_out = ["__dict__", "__weakref__", "__module__", "__qualname__", "_abc_impl", "__static_attributes__", "__firstlineno__"]
    if isinstance(cls.__dict__.get("__slots__"), (str, tuple, list)):
        slots = namespace["__slots__"] = state.pop("__slots__")
        left_out += [slots] if isinstance(slots, str) else list(slots)
    left_out += [name for name, value in state.items() if isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType))]
    if loaded("enum", "EnumMeta") and isinstance(cls, sys.modules["enum"].EnumMeta):
        members = {name: member._value_ for name, member in cls.__members__.items()}
        own = [name for name in state if name.startswith("_") and not callable(getattr(cls, name, None)) and name != "__doc__"]
        left_out += list(members) + own + ["__new__", "_generate_next_value_", "__reduce_ex__", "__or__", "__and__", "__xor__", "__ror__", "__rand__", "__rxor__", "__invert__"]
        make = rebuild_enum, (type(cls), cls.__name__, cls.__bases__, namespace, members)
    else:
        make = rebuild_class, (type(cls), cls.__name__, cls.__bases__, namespace)
    for name in left_out:
        state.pop(name, None)
    return make + (state, None, None, set_class)


def rebuild_cached(function, maximum, typed):
    return functools.lru_cache(maximum, typed)(function)


def reduce_cached(function):
    parameters = function.cache_parameters() if hasattr(function, "cache_parameters") else {"maxsize": 128, "typed": False}
    return rebuild_cached, (function.__wrapped__, parameters["maxsize"], parameters["typed"])


def rebuild_cached_property(function, name):
    found = functools.cached_property(function)
    found.attrname = name
    return found


def rebuild_type_variable(name, constraints, bound, covariant, contravariant):
    return importlib.import_module("typing").TypeVar(name, *constraints, bound=bound, covariant=covariant, contravariant=contravariant)


def reduce_type_variable(variable):
    flags = variable.__covariant__, variable.__contravariant__
    return rebuild_type_variable, (variable.__name__, variable.__constraints__, variable.__bound__) + flags


CACHED = type(functools.lru_cache(None)(lambda: None))
# Objects that the module dataclasses recognizes by identity.
FIELD_KINDS = ("MISSING", "KW_ONLY", "_FIELD", "_FIELD_CLASSVAR", "_FIELD_INITVAR")


# Objects that every process has its own copy of. The built-in names are in the globals of every function.
OF_EACH_PROCESS = {"module": MAIN, "namespace": MAIN.__dict__, "builtins": builtins.__dict__}


class Pickler(pickle.Pickler):
    def persistent_id(self, thing):
        return next((name for name, own in OF_EACH_PROCESS.items() if thing is own), None)

    def reducer_override(self, thing):
        kind = type(thing)
        if kind is types.FunctionType:
            return NotImplemented if is_importable(thing) else reduce_function(thing)
        if issubclass(kind, type):
            if thing in NAMELESS:
                return getattr, (types, NAMELESS[thing])
            return NotImplemented if is_importable(thing) or thing.__module__ == "builtins" else reduce_class(thing)
        if kind is types.ModuleType:
            if sys.modules.get(thing.__name__) is not thing:
                raise pickle.PicklingError("the module %r was not imported" % thing)
            return rebuild_module, (thing.__name__,)
        if kind is types.CellType:
            return reduce_cell(thing)
        if kind is property:
            return property, (thing.fget, thing.fset, thing.fdel, thing.__doc__)
        if kind in (classmethod, staticmethod):
            return kind, (thing.__func__,)
        if kind is types.MappingProxyType:
            return types.MappingProxyType, (dict(thing),)
        if kind is CACHED:
            return NotImplemented if is_importable(thing) else reduce_cached(thing)
        if kind is functools.cached_property:
            return rebuild_cached_property, (thing.func, thing.attrname)
        if kind is loaded("typing", "TypeVar"):
            return NotImplemented if is_importable(thing) else reduce_type_variable(thing)
        if kind.__module__ == "dataclasses":
            for name in FIELD_KINDS:
                if thing is loaded("dataclasses", name):
                    return getattr, (sys.modules["dataclasses"], name)
        return NotImplemented


class Unpickler(pickle.Unpickler):
    def persistent_load(self, name):
        return OF_EACH_PROCESS[name]


# Types that no module has under their own names.
NAMELESS = ("FunctionType", "BuiltinFunctionType", "MethodType", "CodeType", "CellType", "ModuleType", "GeneratorType", "MappingProxyType")
NAMELESS = {getattr(types, name): name for name in NAMELESS}


class Pickling:
    """What holds while objects are pickled or unpickled."""

    def __enter__(self):
        # Unpickling finds the functions that rebuild objects here.
        sys.modules["delta_sessions"] = HERE
        self.limit = sys.getrecursionlimit()
        sys.setrecursionlimit(min(self.limit, MOST_DEPTH))

    def __exit__(self, *error):
        sys.setrecursionlimit(self.limit)
        del sys.modules["delta_sessions"]


def dumps(value):
    out = io.BytesIO()
    with Pickling():
        Pickler(out, protocol=4).dump(value)
    return out.getvalue()


def loads(data):
    with Pickling():
        return Unpickler(io.BytesIO(data)).load()


HERE = types.ModuleType("delta_sessions")
HERE.__dict__.update(globals())


# The state: first what must be set before modules can be imported, then all names in one pickle, so that objects that names
# share stay shared.


def survives(data):
    """Whether a new process could unpickle it; tried in a fork of this one."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    code = 1
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        # Kept alive, so that nothing is finalised twice: a finaliser may act outside this process.
        held = dict(vars(MAIN))
        for name in held:
            if name not in OWN:
                del vars(MAIN)[name]
        held[MISSING] = loads(data)
        code = 0
    finally:
        os._exit(code)


def is_fine(data):
    return data is not None and not any(secret in data for secret in SECRETS) and survives(data)


def attempt(names):
    try:
        return dumps(names)
    except BaseException:
        return None


def preserve(names):
    """The pickle of as many names as possible, and the names that it does not contain."""
    data = attempt(names)
    if is_fine(data):
        return data, []
    kept = {name: value for name, value in names.items() if is_fine(attempt({name: value}))}
    data = attempt(kept)
    if not is_fine(data):
        # Each can be pickled, but not all of them together.
        kept, data = {}, dumps({})
    return data, sorted(set(names) - set(kept))


def save():
    names = {name: value for name, value in vars(MAIN).items() if name not in OWN}
    if hasattr(builtins, "_"):
        names["_"] = names.get("_", builtins._)
    shell = {
        "environ": {name: value for name, value in os.environ.items() if name not in SKIP and not any(secret in os.fsencode(value) for secret in SECRETS)},
        "path": [entry for entry in sys.path if isinstance(entry, str)],
        "umask": os.umask(0o77),
        "flags": FLAGS,
        "recursion": sys.getrecursionlimit(),
        "underscore": "_" not in vars(MAIN),
    }
    data, lost = preserve(names)
    try:
        here = os.fsencode(os.getcwd())
    except OSError:
        here = WORK_DIR
    with open(os.path.join(DIRECTORY, "work_dir.txt"), "wb") as file:
        file.write(here + b"\n")
    with open(os.path.join(DIRECTORY, "not_preserved.json"), "w") as file:
        lost = [name for name in lost if name != "_" or "_" in vars(MAIN)]
        file.write(importlib.import_module("json").dumps(lost) if lost else "[]")
    unfinished = os.path.join(DIRECTORY, "state.tmp")
    with open(unfinished, "wb") as file:
        pickle.dump(shell, file, protocol=4)
        file.write(data)
    os.replace(unfinished, os.path.join(DIRECTORY, "state.pickle"))


def restore():
    global FLAGS
    with open(STATE, "rb") as file:
        shell = pickle.load(file)
        data = file.read()
    passed = {name: os.environ[name] for name in SKIP if name in os.environ}
    os.environ.clear()
    os.environ.update(shell["environ"])
    os.environ.update(passed)
    sys.path[:] = shell["path"]
    os.umask(shell["umask"])
    sys.setrecursionlimit(shell["recursion"])
    FLAGS = shell["flags"]
    names = loads(data)
    if shell["underscore"] and "_" in names:
        builtins._ = names.pop("_")
    vars(MAIN).update(names)


# Running.


def show_syntax_error(error):
    # Without a frame, as in the interactive interpreter.
    sys.excepthook(type(error), error.with_traceback(None), None)


def run(source):
    """Compiles and runs the text; returns the exit code."""
    global FLAGS
    try:
        tree = compile(source, "<stdin>", "exec", ast.PyCF_ONLY_AST | FLAGS, True)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        steps = [compile(tree, "<stdin>", "exec", FLAGS, True)]
        # Imports from __future__ stay in effect for later commands.
        flags = FLAGS | steps[0].co_flags & FEATURES
        if last is not None:
            steps.append(compile(ast.Interactive([last]), "<stdin>", "single", flags, True))
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        show_syntax_error(error)
        return 1
    FLAGS = flags
    try:
        for step in steps:
            exec(step, vars(MAIN))
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return (leaving.code or 0) & 0xFF
        print(leaving.code, file=sys.stderr)
        return 1
    except BaseException as error:
        # Skip this function's frame.
        trace = error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def refuse(reason):
    """Exits without running the command."""
    with open(os.path.join(DIRECTORY, "refused"), "w") as file:
        file.write(reason)
    sys.exit(1)


def enter():
    """Enters the working directory; removes directories that were created only for that."""
    os.chdir(WORK_DIR)
    # The interpreter started elsewhere.
    os.environb[b"PWD"] = WORK_DIR
    gone = WORK_DIR
    for _ in range(GONE):
        os.rmdir(gone)
        gone = os.path.dirname(gone)


def main():
    global FLAGS
    sys.argv[:] = [""]
    if sys.version_info < (3, 8):
        refuse("expected Python 3.8 or later, found %s" % sys.version.split()[0])
    if hasattr(sys.stdout, "reconfigure"):
        # As at a terminal, so that the output of children comes in order.
        sys.stdout.reconfigure(line_buffering=True)
    with open(os.path.join(DIRECTORY, "text"), "rb") as file:
        source = file.read()
    enter()
    if os.path.exists(STATE):
        try:
            restore()
        except Exception as error:
            refuse("could not restore the state: %s: %s" % (type(error).__name__, error))
    code = run(source)
    try:
        save()
    except Exception as error:
        print("delta-sessions: could not save the state: %s" % error, file=sys.stderr)
    sys.exit(code)


FEATURES = functools.reduce(lambda all, name: all | getattr(__future__, name).compiler_flag, __future__.all_feature_names, 0)
FLAGS = 0
STATE, DIRECTORY, WORK_DIR = (os.environb.pop(name) for name in (b"__delta_from", b"__delta_dir", b"__delta_cwd"))
DIRECTORY = os.fsdecode(DIRECTORY)
SKIP = os.environ.pop("__delta_skip").split()
SECRETS = [os.environb[os.fsencode(name)] for name in os.environ.pop("__delta_keys").split() if len(os.environ.get(name, "")) >= 8]
GONE = int(os.environ.pop("__delta_gone"))
main()
