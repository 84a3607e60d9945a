"""What flows through a graph: which nodes matter or depend on parameters, what is alive when."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .graphs import Graph, Kind, Node, Value


class Flow:
    """The nodes that a result needs, in two groups.

    `work` depends on parameters or draws random numbers, so it belongs to one layer. All other
    nodes, such as masks and positions, are copied into every layer that reads them.
    """

    def __init__(self, graph: Graph, results: Iterable[Value],
                 is_parameter: Callable[[Value], bool]) -> None:
        self.is_parameter = is_parameter
        self._roots: dict[Value, Value] = {}
        for node in graph.nodes:
            self._add_roots(node)
        self.nodes = self._needed(graph.nodes, list(results))
        self._number = {node: i for i, node in enumerate(self.nodes)}
        impure = self._impure_nodes()
        self.work = [node for node in self.nodes if node in impure]
        self._pure = [node for node in self.nodes if node not in impure]
        self._makers = {value: node for node in self.nodes for value in node.outputs}
        self._pure_set = set(self._pure)

    def root(self, value: Value) -> Value:
        """The value whose memory this one may share."""
        return self._roots.get(value, value)

    def crosses(self, value: Value) -> bool:
        """Whether the value, read by a later layer, must come from an earlier one."""
        return value.kind == Kind.RESULT and self._makers[value] not in self._pure_set

    def with_pure(self, work: list[Node], result: Value) -> list[Node]:
        """The nodes and all pure ones that they and the result need, in order."""
        chosen = set(work)
        waiting = [result, *(value for node in work for value in node.reads())]
        seen: set[Value] = set()
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            maker = self._makers.get(value)
            makers = [maker] if maker in self._pure_set else []
            root = self.root(value)
            makers += [node for node in self._pure
                       if any(self.root(written) is root for written in node.writes())]
            for node in makers:
                if node is not None and node not in chosen:
                    chosen.add(node)
                    waiting += [*node.reads(), *node.outputs]
        return sorted(chosen, key=self._number.__getitem__)

    def _add_roots(self, node: Node) -> None:
        """Values that may share memory have one root."""
        viewed = [self.root(value) for value in node.viewed()]
        if not viewed:
            return
        root = viewed[0]
        for value in viewed[1:]:
            if value is not root:
                self._roots.update({each: root for each, of in self._roots.items() if of is value})
                self._roots[value] = root
        for value in node.outputs:
            self._roots[value] = root

    def _needed(self, nodes: list[Node], results: list[Value]) -> list[Node]:
        values, roots = set(results), {self.root(value) for value in results}
        needed = []
        for node in reversed(nodes):
            writes = any(self.root(value) in roots for value in node.writes())
            if writes or any(value in values for value in node.outputs):
                needed.append(node)
                values.update(node.reads())
                roots.update(self.root(value) for value in node.reads())
        return needed[::-1]

    def _impure_nodes(self) -> set[Node]:
        impure: set[Node] = set()
        tainted: set[Value] = set()  # roots
        size = -1
        while size != len(impure):
            size = len(impure)
            for node in self.nodes:
                touched = {self.root(value) for value in (*node.reads(), *node.outputs)}
                if not (node.op == "spillway::dropout" or touched & tainted
                        or any(self.is_parameter(value) for value in node.reads())):
                    continue
                impure.add(node)
                tainted.update(self.root(value) for value in (*node.outputs, *node.writes()))
        return impure
