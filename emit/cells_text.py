    def _allocate_parts(self) -> None:
        reduced = {d.name for d in self.program.hom.dims_of("pw")}
        bound = self.nest.loops[self.nest.threads[0] : self.nest.threads[1]]
        factors: list[int | str] = []
        for loop in bound:
            if loop.dim in reduced:
                factors.append(self._trips(loop))
        self.slot_count = str(product_text(factors))
        cells: list[int | str] = [size_name(d.name) for d in self.program.hom.dims_of("cc")]
        self.cell_count = str(product_text(cells))
        for c, t in enumerate(self.types):
            name = self.context.names.new(f"part{c}")
            self.parts.append(name)
            count = product_text([*factors, *cells])
            self.context.allocations.append(Allocation(name, c_type(t), str(count)))

    def _trips(self, loop: Loop) -> int | str:
        """Parts of a loop that are not empty for every position of the loops around it."""
        n = size_name(loop.dim)
        known = self.program.dim(loop.dim).size.constant
        if loop.count is not None:
            reach = loop.count * loop.size
            if known is not None:
                return -(-min(known, reach) // loop.size)
            least = f"({n} < {reach} ? {n} : {reach})"
            return least if loop.size == 1 else f"(({least} + {loop.size - 1})/{loop.size})"
        if known is not None:
            return -(-known // loop.size)
        return n if loop.size == 1 else f"(({n} + {loop.size - 1})/{loop.size})"

    # ------------------------------------------------------------------ unfinished and finished cells

    @property
    def first_visit(self) -> str:
        return " && ".join(self.visits)

    def cell(self) -> str:
        """Number of the current cell among the cells of all cc dimensions."""
        text = ""
        for d in self.program.hom.dims_of("cc"):
            at = self.context.at[d.name]
            if not text:
                text = at
                continue
            left = text if text.replace("_", "a").isalnum() else f"({text})"
            text = at if left == "0" else f"{left}*{size_name(d.name)} + {at}"
        return text or "0"

    def slot(self) -> str:
        text = ""
        for variable, start, size, _ in self.slots:
            digit = variable if start == "0" else f"({variable} - {start})"
            digit = digit if size == 1 else f"{digit}/{size}"
            dim = next(x.dim for x in self.nest.loops if self._is_variable(x, variable))
            trips = self._trips_of(dim)
            text = digit if not text else f"({text})*{trips} + {digit}"
        return text or "0"

    def _is_variable(self, loop: Loop, variable: str) -> bool:
        return variable == loop.dim or variable.startswith(loop.dim + "_")

    def _trips_of(self, dim: str) -> int | str:
        loops = self.nest.loops[self.nest.threads[0] : self.nest.threads[1]]
        return self._trips(next(x for x in loops if x.dim == dim))

    def part(self, c: int) -> str:
        """The temporary that keeps component ``c`` of the current cell."""
        slot, cell = self.slot(), self.cell()
        if slot == "0":
            return f"{self.parts[c]}[{cell}]"
        if self.cell_count == "1":
            return f"{self.parts[c]}[{slot}]"
        at = slot if slot.replace("_", "a").isalnum() else f"({slot})"
        return f"{self.parts[c]}[{at}*({self.cell_count}) + {cell}]" if cell != "0" else (
            f"{self.parts[c]}[{at}*({self.cell_count})]"
        )

    def stored(self, c: int) -> str:
        """The output cell that keeps component ``c`` (results "in place")."""
        store = next(s for s in self.program.out.stores if s.plain == c)
        return self.context.subscript(store.buffer, store.index)

    @property
    def parts_are_seeded(self) -> bool:
        """Whether a cell's single part starts from the initial value: nothing is reassociated then."""
        reduced = {d.name for d in self.program.hom.dims_of("pw")}
        bound = self.nest.loops[self.nest.threads[0] : self.nest.threads[1]]
        return (
            self.nest.results == "parts"
            and not any(x.dim in reduced for x in bound)
            and all(e is not None for e in self.program.out.initial)
        )

    def initial(self, c: int) -> str | None:
        e = self.program.out.initial[c]
        return None if e is None else self.context.scalar(e)

    def store_all(self, results: list[str]) -> None:
        """Store the finished results of the current cell: every value first, then every write."""
        self.context.results = dict(enumerate(results))
        stores = self.program.out.stores
        values = []
        for s in stores:
            b = self.program.buffer(s.buffer)
            text = self.context.scalar(s.value)
            if len(stores) > 1 and s.plain is None:
                name = self.context.names.new("value")
                self.out.add(f"const {c_type(b.type)} {name} = {text};")
                text = name
            values.append(text)
        for s, text in zip(stores, values, strict=True):
            target = self.context.subscript(s.buffer, s.index)
            guard = " && ".join(
                f"{self.context.at[d]} == {size_name(d)} - 1" for d in s.at_last
            )
            self.out.add(f"if ({guard}) {target} = {text};" if guard else f"{target} = {text};")

    def with_initial(self, results: list[str]) -> list[str]:
        """``initial ⊛ results``, as new constants; the results themselves if there is no initial value."""
        initials = [self.initial(c) for c in range(len(self.types))]
        if self.function is None or any(x is None for x in initials):
            return results
        combined = self.context.combined(self.function, [str(x) for x in self._named(initials)], results)
        if len(results) == 1:
            return combined
        return self._named(combined)

    def _named(self, texts: list[str] | list[str | None]) -> list[str]:
        """Constants for texts that are more than a name, so that they are evaluated once."""
        out = []
        for c, text in enumerate(texts):
            assert text is not None
            if text.replace("_", "a").replace(".", "a").isalnum():
                out.append(text)
                continue
            name = self.context.names.new("r")
            self.out.add(f"const {c_type(self.types[c])} {name} = {text};")
            out.append(name)
        return out

    def every_cell(self, initial_only: bool) -> None:
        """A pass over all cells: store the initial value, or combine the parts and store."""
        dims = self.program.hom.dims_of("cc")
        saved = dict(self.context.at)
        for d in self.program.hom.dims_of("pw"):
            self.context.at[d.name] = "0"
        with ExitStack() as stack:
            if dims:
                collapse = f" collapse({len(dims)})" if len(dims) > 1 else ""
                self.out.add(f"#pragma omp parallel for{collapse} schedule(static)")
            for k, d in enumerate(dims):
                v = self.context.names.new(d.name)
                head = f"for (long {v} = 0; {v} < {size_name(d.name)}; {v}++)"
                if k == len(dims) - 1:
                    stack.enter_context(self.out.block(head))
                else:
                    self.out.add(head)
                    self.out.indent += 1
                    stack.callback(self._dedent)
                self.context.at[d.name] = v
            if initial_only:
                self.store_all(self._named([self.initial(c) for c in range(len(self.types))]))
            else:
                self._combine_parts()
        self.context.at = saved

    def _replaced(self, left: list[str], right: list[str]) -> bool:
        """Write ``if (better) left = right;`` where that is all the operator does (arg-min and its like)."""
        assert self.function is not None
        first = self.function.values[0]
        for c, e in enumerate(self.function.values):
            if not (
                isinstance(e, Select)
                and isinstance(first, Select)
                and e.cond == first.cond
                and e.then == Var(f"r{c}", e.type)
                and e.other == Var(f"l{c}", e.type)
            ):
                return False
        assert isinstance(first, Select)
        with self.out.block(f"if ({self.context.condition(first.cond, left, right)})"):
            for a, b in zip(left, right, strict=True):
                self.out.add(f"{a} = {b};")
        return True

    def _combine_parts(self) -> None:
        assert self.function is not None
        cell = self.cell()
        names = []
        for c, t in enumerate(self.types):
            name = self.context.names.new("whole")
            self.out.add(f"{c_type(t)} {name} = {self.parts[c]}[{cell}];")
            names.append(name)
        if self.slot_count != "1":
            s = self.context.names.new("part")
            cells = "" if self.cell_count == "1" else f"*({self.cell_count})"
            with self.out.block(f"for (long {s} = 1; {s} < {self.slot_count}; {s}++)"):
                at = f"{s}{cells}" if cell == "0" else f"{s}{cells} + {cell}"
                self.accumulate(names, [f"{p}[{at}]" for p in self.parts])
        self.store_all(names if self.parts_are_seeded else self.with_initial(names))

    def accumulate(self, left: list[str], right: list[str]) -> None:
        """``left = left ⊛ right`` for scalar texts."""
        assert self.function is not None
        if len(left) > 1:
            right = self._named(right)
            if self._replaced(left, right):
                return
        texts = self.context.combined(self.function, left, right)
        if len(left) > 1:
            texts = self._named(texts)
        for c, name in enumerate(left):
            if texts[c] == name:
                continue
            e = self.function.values[c]
            if (
                isinstance(e, Binary)
                and isinstance(e.a, Var)
                and isinstance(e.b, Var)
                and texts[c].startswith(f"{name} {e.op} ")
                and len(left) == 1
            ):
                self.out.add(f"{name} {e.op}= {texts[c][len(name) + 2 + len(e.op) :]};")
            else:
                self.out.add(f"{name} = {texts[c]};")
