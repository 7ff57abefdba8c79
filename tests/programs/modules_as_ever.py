"""What a program can see of calls of its modules; printed as JSON.

    python modules_as_ever.py off|phases|modules|ended FILE.gmt

All but ``off`` record: before it, or (``ended``) until right before it. The output is the same.

Over 400 lines: it is one process's whole life, and each more would import torch again.
"""

import contextlib
import copy
import gc
import inspect
import io
import json
import pickle
import sys
import threading
import traceback
import weakref

import torch
from torch import fx, nn
from torch._dynamo.utils import counters

import gpumemtrace

seen: dict[str, object] = {}


class Early(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x):
        return torch.relu(self.inner(x))


class OwnCall(Early):
    def __call__(self, x, *, twice=False):
        self.calls += 1
        x = super().__call__(x)
        return super().__call__(x) if twice else x


class ForeignCall(Early):
    """Not through torch at all."""

    def __call__(self, x):
        self.calls += 1
        return x


def made():
    """Classes like those above, made now."""

    class Late(Early):
        pass

    class LateOwnCall(Early):
        __call__ = OwnCall.__dict__["__call__"]

    LateOwnCall.__call__ = lambda self, x: Early.__call__(self, x)
    return Late, LateOwnCall


class Breaks(Early):
    """In two parts, when compiled; the inner module is called in the second one."""

    def forward(self, x):
        x = x * 2
        torch._dynamo.graph_break()
        return self.inner(x)


class Registers(nn.Module):
    names: list = []  # noqa: RUF012

    def __init_subclass__(cls, /, label, **keywords):
        super().__init_subclass__(**keywords)
        cls.names.append(label)


class KeepsToItself(nn.Module):
    def __init_subclass__(cls):
        pass


class Mixin:
    labels: list = []  # noqa: RUF012

    def __init_subclass__(cls, /, label="", **keywords):
        super().__init_subclass__(**keywords)
        cls.labels.append(label)


class Meta(type):
    def __subclasses__(cls):
        raise RuntimeError("not told")


def outcome(function):
    """The result, or the error with the functions it came through."""
    try:
        return str(function())
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        return [type(error).__name__, str(error), [frame.name for frame in frames]]


def see(name):
    def run(function):
        seen[name] = function()

    return run


x = torch.ones(2, 4)


def before_recording():
    """What is made, and partly run, before anything is recorded."""
    torch.manual_seed(0)
    early = Early()
    compiled = torch.compile(early, backend="eager")
    compiled(x)
    breaks = torch.compile(Breaks(), backend="eager")
    return early, compiled, breaks


def run(early, compiled, breaks):
    @see("calls")
    def _():
        late, late_own = made()
        own = OwnCall()
        foreign = ForeignCall()
        results = [m(x).shape for m in (early, late(), late_own(), own, foreign, early.inner)]
        own(x, twice=True)
        return str(results), own.calls, foreign.calls, callable(early), str(inspect.signature(own))

    @see("subclasses")
    def _():
        class Labelled(Registers, label="one"):
            pass

        class Below(KeepsToItself):
            pass

        class Mixed(nn.Module, Mixin, label="two"):
            pass

        class WithMeta(nn.Module, metaclass=Meta):
            pass

        def wrong():
            class Wrong(nn.Module, colour="red"):
                pass

        def wrong_below():
            class Wrong(Registers, label="x", colour="red"):
                pass

        kinds = Labelled, Below, Mixed, WithMeta
        return (
            Registers.names,
            Mixin.labels,
            outcome(wrong),
            outcome(wrong_below),
            [kind.__mro__[1].__name__ for kind in kinds],
            [isinstance(kind(), nn.Module) for kind in kinds],
            [issubclass(kind, nn.Module) for kind in kinds],
            outcome(lambda: Early()()),
        )

    @see("classes are not kept")
    def _():
        kinds = [weakref.ref(kind) for kind in made()]
        gc.collect()
        return [kind() is None for kind in kinds]

    @see("functions and tables of torch")
    def _():
        tables = nn.modules.module
        names = ("__call__", "_call_impl", "_wrapped_call_impl", "__setattr__", "forward")
        return (
            [vars(nn.Module)[name].__qualname__ for name in names],
            [vars(nn.Module)[name].__module__ for name in names],
            sorted(set(vars(nn.Module)) - {"__init_subclass__"}),
            [bool(v) for k, v in sorted(vars(tables).items()) if k.startswith("_global_")],
            sorted(vars(early)),
            [k for k, v in vars(early).items() if k.endswith("hooks") and v],
        )

    @see("copies")
    def _():
        again = pickle.loads(pickle.dumps(early))
        buffer = io.BytesIO()
        torch.save(early, buffer)
        buffer.seek(0)
        loaded = torch.load(buffer, weights_only=False)
        return [torch.equal(m(x), early(x)) for m in (again, loaded, copy.deepcopy(early))]

    @see("errors")
    def _():
        class Fails(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(4, 4)

            def forward(self, x):
                return self.inner(x) / (1 // 0)

        class NoInit(nn.Module):
            def __init__(self):
                pass

        return (
            outcome(lambda: Fails()(x)),
            outcome(lambda: nn.Sequential(Fails())(x)),
            outcome(lambda: NoInit()(x)),
            outcome(lambda: early()),
            outcome(lambda: early(x, colour="red")),
            outcome(lambda: nn.Module()(x)),
        )

    @see("recursion")
    def _():
        class Deep(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(1))
                self.depth = 0

            def forward(self, levels):
                self.depth += 1
                return 0 if levels == 0 else self(levels - 1) + 1

        deep, endless = Deep(), Deep()
        return deep(50), outcome(lambda: endless(-1))[:2], endless.depth

    @see("threads")
    def _():
        results: list = []

        def work(number):
            model = nn.Sequential(nn.Linear(4, 4), Early()).eval()
            for _ in range(200):
                late, _ = made()
                results.append((tuple(model(x).shape), tuple(late()(x).shape)))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(results), sorted(set(map(str, results)))

    @see("generators")
    def _():
        class Yields(Early):
            def forward(self, x):
                yield self.inner(x).sum().isfinite().item()
                raise KeyError("end")

        return outcome(lambda: list(Yields()(x)))

    @see("assigned calls")
    def _():
        class Changed(Early):
            pass

        model, found = Changed(), []
        Changed.__call__ = lambda self, x: "ours"
        found.append(model(x))
        del Changed.__call__
        found.append(str(model(x).shape))
        original = Early.__call__
        Early.__call__ = lambda self, x: "the base's"
        found.append(model(x))
        del Early.__call__
        assert Early.__call__ is original
        return [*found, str(model(x).shape)]

    @see("traced")
    def _():
        graph = fx.symbolic_trace(early)
        script = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
        record = torch.jit.trace(early, x)
        return (
            graph.code,
            torch.equal(graph(x), early(x)),
            script.code,
            str(script(x).shape),
            record.code,
            torch.equal(record(x), early(x)),
        )

    @see("backward and data")
    def _():
        backward, loader = torch.autograd.backward, torch.utils.data.DataLoader

        class Wrong(torch.utils.data.Dataset):
            def __len__(self):
                return 1

            def __getitem__(self, index):
                raise LookupError("no such thing")

        class TwiceAsFar(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                raise ArithmeticError("too far")

        def fail():
            TwiceAsFar.apply(torch.ones(2, requires_grad=True)).sum().backward()

        def nothing():
            leaf = torch.ones(2, requires_grad=True)
            backward(tensors=[leaf.sum(), (leaf * 2).sum()], grad_tensors=None)
            return leaf.grad.tolist()

        iterator = torch.utils.data.dataloader._BaseDataLoaderIter
        return (
            [getattr(backward, name) for name in ("__name__", "__qualname__", "__module__")],
            [getattr(iterator.__next__, name) for name in ("__name__", "__qualname__")],
            str(inspect.signature(backward)),
            backward.__doc__ == inspect.unwrap(backward).__doc__,
            pickle.loads(pickle.dumps(backward)) is backward,
            outcome(nothing),
            outcome(fail),
            outcome(lambda: backward(torch.ones(1))),
            outcome(lambda: backward(colour="red")),
            outcome(lambda: next(iter(loader(Wrong())))),
            outcome(lambda: [batch.tolist() for batch in loader([1, 2, 3], batch_size=2)]),
        )

    @see("compiled")
    def _():
        graphs = []

        def backend(graph, inputs):
            targets = [getattr(node.target, "__name__", node.target) for node in graph.graph.nodes]
            graphs.append(targets)
            return graph

        class MakesClasses(Early):
            def forward(self, x):
                x = self.inner(x)
                torch._dynamo.graph_break()
                return OwnCall.forward(self, x) + made()[0]()(x)

        counters.clear()
        compiled(x)  # compiled before: no need to compile it again
        again = {key: dict(value) for key, value in counters.items()}
        breaks(x)
        first = {key: dict(value) for key, value in counters.items()}
        model = torch.compile(nn.Sequential(MakesClasses(), Early(), OwnCall()), backend=backend)
        for rows in (2, 2, 3, 5):
            model(torch.ones(rows, 4)).sum().backward()

        @torch.compile(backend=backend)
        def step(x):
            return OwnCall.forward(own, x) * 2

        own = OwnCall()
        step(x)
        keys = "frames", "stats", "graph_break", "unique_graphs"
        return again, first, graphs, {key: dict(counters[key]) for key in keys}

    @see("compiled training")
    def _():
        graphs = []

        def backend(graph, inputs):
            graphs.append([getattr(n.target, "__name__", n.target) for n in graph.graph.nodes])
            return graph

        own = OwnCall()
        counters.clear()

        @torch.compile(backend=backend)
        def learn(x):
            own(x).sum().backward()
            torch.autograd.backward(own(x).sum())
            optimizer.step()
            optimizer.zero_grad()

        optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
        learn(x)
        learn(x)
        # How often, not why: of zero_grad and backward it says where it came to a stop.
        return graphs, sum(counters["graph_break"].values())


def main():
    mode, path = sys.argv[1:]
    made_before = before_recording()
    with contextlib.ExitStack() as stack:
        if mode != "off":
            session = gpumemtrace.install(path, modules=mode == "modules")
            stack.callback(gpumemtrace.uninstall)
            assert session is not None
        if mode == "ended":
            made_before[0](x)
            made()
            stack.close()
            assert "__init_subclass__" not in vars(nn.Module)
        run(*made_before)
    print(json.dumps(seen))


main()
