"""The stages of a run that write and spend nothing: declare, check, plan; and who is protected.

All errors of a request or its records are found here, before there is a run folder.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dpgen_jax import methods
from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import Events
from dpgen_jax.accountant.ledger import larger_counts
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.aggregation.noise import OsBits, SeededBits
from dpgen_jax.core import hosts, run_folder, storage
from dpgen_jax.core.config import Budget, MonitorOptions, Runtime, to_json
from dpgen_jax.core.errors import option
from dpgen_jax.core.files import Json
from dpgen_jax.core.request import Request
from dpgen_jax.core.run_folder import RunFolder
from dpgen_jax.core.terms import ProtectedUnit, Unit, at_most
from dpgen_jax.core.types import Method, Private, Records, Spec, TableSpec, UserError
from dpgen_jax.data import Dataset, sources
from dpgen_jax.data import clients as federations
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.private import records as sealing
from dpgen_jax.private import teachers
from dpgen_jax.private.records import Partition
from dpgen_jax.release import bundle, documents, guarantee
from dpgen_jax.release.guarantee import Protected
from dpgen_jax.run import capacity, loop, monitor, resume, side_releases
from dpgen_jax.run.calibrate_config import complete, with_records
from dpgen_jax.run.loop import require_32_bits
from dpgen_jax.run.progress import Notices

Log = Callable[[str], None]
"""Prints a line of a run."""


@dataclasses.dataclass(frozen=True)
class Resolved:
    """A training run of which nothing is left open but what follows from its budget.

    Attributes:
        method: The name of a method.
        preset: The name of the preset that the configuration began from.
        config: The method's `Config`; `sigma` or `steps` may be None.
        budget: The promise, fixed before the first release.
        runtime: Speed and memory.
        out: The run folder; None: runs/METHOD-DATASET-TIME.
        resume: Whether to go on with the run in `out`.
        seed: Repeats a run, without a privacy claim; None: the operating system's randomness.
        monitor: What is shown while training.
        accept_uncovered: Whether public fields that were read from private records are released;
            the statement then says so.
        total_epsilon: The epsilon that all runs on these records, as far as this machine's journal
            knows them, may not exceed together; None: no such limit.
        why_method: Why the method was chosen; empty where the user named it.
        why_preset: Likewise of the preset.
        remarks: Lines on the data that the user needs to know, as on a schema that was bought.
        release_to: The address on an object store that the release is copied to; None: nowhere.
        stated: The request that it was resolved from, which the run folder keeps; None where there
            was none.
    """

    method: str
    preset: str
    config: MethodConfig
    budget: Budget
    runtime: Runtime = Runtime()
    out: Path | None = None
    resume: bool = False
    seed: int | None = None
    monitor: MonitorOptions = MonitorOptions()
    accept_uncovered: bool = False
    total_epsilon: float | None = None
    why_method: str = ""
    why_preset: str = ""
    remarks: tuple[str, ...] = ()
    release_to: str | None = None
    stated: Request | None = None

    def details(self, log: Log) -> Log:
        """Returns `log` where the user wants all lines, and a function that prints none else."""
        return log if self.monitor.verbose else lambda line: None


def federated(data: Dataset, config: MethodConfig, clients: int | None = None,
              alpha: float | None = None) -> tuple[Dataset, MethodConfig]:
    """The data set and the configuration of a federated run; both as they are for any other.

    Clients that the data set names stay. Otherwise as many as `clients` says (or the configuration,
    where units are always clients) are simulated: evenly, by the run's secret key, or by class with
    shares from Dirichlet(alpha).

    Args:
        data: The data set.
        config: The method's configuration.
        clients: The number of clients to simulate, or None.
        alpha: How alike the simulated clients are, or None for an even split.

    Returns:
        The data set with its clients, and the configuration with their number.

    Raises:
        UserError: Clients that this method or data set cannot have.
    """
    if data.subjects is not None and config.protects_clients:
        return data, config  # `refuse_subjects` names the method
    if not config.protects_clients:
        if clients is not None or alpha is not None:
            raise UserError(f"{option('clients')} and {option('alpha')} need "
                            f"{option('federated')}, and a method that has it")
        return data, config
    if config.units_are_clients and clients is None and data.clients is None:
        clients = config.n_clients
    if data.clients is not None and not data.simulated:
        data = federations.with_declared_clients(data, clients, alpha)
    elif data.clients is None and alpha is not None:
        data = federations.split(data, clients, alpha, seed=0)
    if data.clients is not None:
        return data, config.with_clients(int(data.clients.max()) + 1)
    count = federations.client_count(data, clients)
    note = f"{count} simulated clients: records are dealt evenly, by a secret key"
    return (dataclasses.replace(data, notes=(*data.notes, note)),
            config.with_clients(count))


def protected_by(method: Method, data: Dataset) -> Protected:
    """Who is protected: records, also those of simulated clients, or clients, or subjects.

    The numbers of records of protected clients and subjects are private.

    Args:
        method: The method.
        data: The data set.

    Returns:
        Who is protected, and what is public.

    Raises:
        UserError: The records cannot be split between the units.
    """
    units, records = method.mechanism.n_units, {"records": len(data.y_train)}
    uncovered, bought = tuple(part.what for part in data.uncovered), bought_from(data)
    if data.subjects is not None:
        sealing.check_partition(data.count, units, "subjects")
        return Protected(data.subjects.unit, {"subjects": data.subjects.count}, data.notes,
                         uncovered)
    if method.mechanism.unit == "record":
        sealing.check_partition(len(data.y_train), units)
        return Protected(ProtectedUnit(), records, data.notes, uncovered, data.simulated,
                         bought_from=bought)
    if data.clients is not None:
        if int(data.clients.max()) + 1 != units:
            raise UserError(f"{data.name} does not name {units} clients; pass "
                            f"{option('clients', 'N')}")
        sealing.by_client(data.clients, units, 1)  # refuses a client without records
        if not data.simulated:
            return Protected(ProtectedUnit(Unit.CLIENT), {"clients": units}, data.notes,
                             uncovered)
    return Protected(ProtectedUnit(), records | {"simulated_clients": units}, data.notes, uncovered,
                     data.simulated, bought_from=bought)


def bought_from(data: Dataset) -> Json:
    """Says how many records the description of the data was bought from, as a statement has it.

    They are all records of the file, those that are held out for tests among them, or those of
    another file; of another file `held_out` is left out. It is empty where nothing was bought at
    the level of records, or no number was noted.
    """
    records = side_releases.records(data.bought)
    if not records or data.bought_unit != Unit.RECORD:
        return {}
    these = records == len(data.y_train) + data.held_out
    return {"records": records} | ({"held_out": data.held_out} if these else {})


def owners(data: Dataset, who: Protected) -> np.ndarray | None:
    """Returns the client or subject of each training record, int [n], where such are protected.

    None where each record is protected by itself, as those of simulated clients are.
    """
    if data.subjects is not None:
        return data.subjects.train
    return data.clients if who.unit.kind == Unit.CLIENT else None


def refuse_subjects(method: str, config: MethodConfig, data: Dataset) -> None:
    """Refuses subjects where a run is not proven to protect all rows of one.

    Raises:
        UserError: The method is not proven for subjects, or a side release covers records only.
    """
    if data.subjects is None:
        return
    flag = f"{option('unit', data.subjects.column)}"
    if not config.protects_subjects or config.protects_clients:
        raise UserError(f"{flag}: {method} is not proven to protect all rows of a unit; use "
                        "another method, or leave the option out and protect single records")
    if data.clients is not None:
        raise UserError(f"{flag}: {data.name} has clients; leave the option out")
    if data.bought:
        raise UserError(f"{flag}: entries of the schema were bought for single rows, which does "
                        "not cover all rows of a unit; declare them")


def refuse_uncovered(data: Dataset, budget: Budget, seed: int | None) -> None:
    """Refuses public fields that were read from private records, unless nothing is promised anyway.

    Raises:
        UserError: One line that names the fields.
    """
    if data.uncovered and seed is None and math.isfinite(budget.epsilon):
        ways: dict[str, list[str]] = {}
        for part in data.uncovered:
            ways.setdefault(part.declare, []).append(part.what)
        what = ". ".join(f"{'; '.join(parts)} (declare {'them' if parts[1:] else 'it'}: {way})"
                         for way, parts in ways.items())
        raise UserError(f"{data.name}: this would be published without being covered by epsilon: "
                        f"{what}. Or pass {option('accept_uncovered', True)}, and the statement "
                        "will say `not covered`")


def dealt(method: Method, config: MethodConfig, data: Dataset, key: bytes) -> sealing.Partition:
    """Splits the records between the units."""
    units, n = method.mechanism.n_units, len(data.y_train)
    if data.subjects is not None:
        return sealing.by_subject(data.subjects, data.x_train, data.y_train, units, key)
    if method.mechanism.unit == "record":
        return sealing.assign(n, units, key)
    if data.clients is None:
        return sealing.simulated_partition(n, units, key, config.client_records)
    return sealing.by_client(data.clients, units, config.client_records)


def unit_slots(method: Method, config: MethodConfig, data: Dataset) -> int:
    """Returns the places for records that all units have in `dealt`: of n, and public numbers."""
    units, n = method.mechanism.n_units, len(data.y_train)
    if data.subjects is not None:
        return units * -(-data.count // units) * data.subjects.rows
    if method.mechanism.unit == "record":
        return units * -(-n // units)
    return units * config.client_records


def stamp_of_run(budget: Budget, seed: int | None, config: MethodConfig, who: Protected
                 ) -> guarantee.Guarantee:
    """The guarantee that a run will be able to state, as far as that is known before it."""
    noise = OsBits.label if seed is None else SeededBits.label
    return guarantee.stamped("", guarantee.faults(
        budget.epsilon, noise, config.accounting, who.simulated), who.uncovered)


GUARANTEE = "guarantee: "
"""The start of the warning that a run has no guarantee, or one with an exception."""


def protection_warnings(budget: Budget, seed: int | None, config: MethodConfig, who: Protected
                        ) -> tuple[str, ...]:
    """Lines about the guarantee for a terminal, before anything is spent.

    Raises:
        UserError: A budget that does not protect.
    """
    known = stamp_of_run(budget, seed, config, who)
    lines = [] if known.kind == "valid" else [f"{GUARANTEE}{known.text}"]
    if math.isfinite(budget.epsilon):
        n = next(iter(who.counts.values()))
        lines += composition.check_budget(budget.epsilon, budget.delta, n)
    return tuple(lines)


NAMED_CLASSES = 5
"""The most classes that the line on the data names."""


def data_line(dataset: Dataset) -> str:
    """Returns the line on the data: public facts only."""
    spec, kind = dataset.spec, str(dataset.options.get("kind", ""))
    if isinstance(spec, TableSpec):
        rows, shape = "rows", f"{len(spec.all_columns)} columns"
        shape += f", label {spec.label.name}" if spec.labelled else ", no label"
        names = spec.label.categories if spec.labelled else ()
    else:
        rows, names = "images", spec.class_names or tuple(map(str, range(spec.classes)))
        colour = "grey" if spec.channels == 1 else "colour"
        shape = f"{spec.height} x {spec.width} pixels, {colour}, {spec.classes} classes"
    if dataset.subjects is not None:
        count = f"{dataset.count:,} units (column {dataset.subjects.column}) for training"
    elif dataset.clients is not None and not dataset.simulated:
        count = f"{int(dataset.clients.max()) + 1:,} clients"
    else:
        count = f"{dataset.count:,} {rows} for training"
    tested = f", {dataset.held_out:,} held out for tests" if dataset.held_out else (
        ", others held out for tests" if dataset.x_test is not None else "")
    more = ", ..." * (len(names) > NAMED_CLASSES)
    classes = f" ({', '.join(names[:NAMED_CLASSES])}{more})" if names else ""
    built_in = ", built in and public" * sources.is_built_in(dataset.options)
    source = f" ({kind}{built_in})" * bool(kind)
    return f"data: {dataset.name}{source}: {count}{tested}; {shape}{classes}"


def method_line(request: Resolved) -> str:
    """Returns the line on the method and the preset, and why they were chosen."""
    method = f", chosen as {request.why_method}" * bool(request.why_method)
    preset = f", {request.why_preset}" * bool(request.why_preset)
    return f"method: {request.method}{method}; preset {request.preset}{preset}"


def promise_line(request: Resolved, mechanism: Mechanism, dataset: Dataset) -> str:
    """Returns the line on what is promised to whom."""
    budget, real_clients = request.budget, dataset.clients is not None and not dataset.simulated
    one, whom = "one record", "each record, its label included"
    if mechanism.unit == "client" and real_clients:
        one, whom = "all records of one client", "all records of a client"
    if dataset.subjects is not None:
        one = f"all rows of one {dataset.subjects.column}"
        whom = f"each {guarantee.whom(dataset.subjects.unit.terms)}"
    uncovered = tuple(part.what for part in dataset.uncovered)
    stamp = stamp_of_run(budget, request.seed, request.config, Protected(
        ProtectedUnit(mechanism.unit), {}, (), uncovered, dataset.simulated))
    numbers = f"epsilon {at_most(budget.epsilon)} at delta {at_most(budget.delta)}"
    if not stamp.holds:
        return ("promise: none, nobody is protected (epsilon inf)"
                + f"; the noise is that of {numbers}" * math.isfinite(budget.epsilon))
    but = ", except for what is not covered" * (stamp.kind == "not covered")
    return (f"promise: {numbers} for {whom}{but}: whatever the release shows would be at most "
            f"{documents.factor(budget.epsilon)} times as likely (plus delta) if {one} "
            f"{documents.INSTEAD[mechanism.relation]} ({mechanism.relation})")


def unprotected_clients(request: Resolved, dataset: Dataset) -> tuple[str, ...]:
    """Returns a line where the data name clients and the method protects records one by one."""
    if dataset.clients is None or dataset.simulated or request.config.protects_clients:
        return ()
    return (f"the data name clients, but {request.method} with these flags protects single "
            "records, not all records of a client together; fedavg_gan protects clients, and so do "
            "gswgan and dpac with --federated",)


def summary_lines(plan: Plan) -> str:
    """Returns the line on the units, the steps, the noise and the devices of a plan."""
    layout, config, budget = plan.layout, plan.config, plan.request.budget
    counts = plan.protected.counts
    size = teachers.unit_bytes(plan.method) * layout.padded / 1e9
    named = " and ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items())
    if plan.protected.unit.kind == Unit.SUBJECT:
        named += f", unit {guarantee.whom(plan.protected.unit.terms)}"
    of_one_kind = [*counts] in (["records"], ["subjects"])
    units = named + (f", {layout.n_units:,} units" if of_one_kind else "")
    cohorts = f", 1 in {layout.n_cohorts} a step" if layout.n_cohorts > 1 else ""
    where = {"device": "", "host": " in host memory", "disk": " on the disk"}[
        plan.request.runtime.state]
    sums = (f" and {capacity.sum_bytes(plan.method) / 1e9:.2f} GB of sums" if plan.method.phases
            else "")
    return (f"{units} ({size:.2f} GB of state{where}{sums}{cohorts}), "
            f"{config.steps:,} steps, sigma {config.sigma:g} for epsilon {at_most(budget.epsilon)} "
            f"at delta {at_most(budget.delta)}; {len(layout.devices)} "
            f"{layout.devices[0].platform} devices, chunks of "
            f"{layout.chunk}{processes_line(layout)}")


def processes_line(layout: teachers.Layout) -> str:
    """Says how many processes there are, and what each has; nothing of one."""
    if hosts.count() == 1:
        return ""
    records = " Each has all records." * layout.sampled
    return (f", in {hosts.count()} processes.{records} The processes and the network between them "
            "must be trusted")


@dataclasses.dataclass(frozen=True)
class Declared:
    """A request of which everything that decides meaning and cost is known.

    Attributes:
        request: The request, with a runtime that fits this machine.
        dataset: The records, not sealed yet, and their public schema.
        config: The method's configuration, with both its noise and its number of steps.
        purchases: The events of what was bought on these records, such as entries of the schema.
        method: The method of that configuration.
        origin: How the run starts.
    """

    request: Resolved
    dataset: Dataset
    config: MethodConfig
    purchases: Events
    method: Method
    origin: resume.Origin


@dataclasses.dataclass(frozen=True)
class Checked:
    """A declared run whose records fit it.

    Attributes:
        declared: The declared run.
        records: The training records, sealed.
        protected: Who is protected, and what is public of the data.
        public_rows: The public records on which the monitor tests, if any.
    """

    declared: Declared
    records: Private[Records]
    protected: Protected
    public_rows: monitor.Rows | None


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that is decided before a run begins; the later stages read nothing else of the request.

    Attributes:
        request: The user's request.
        method: The method, built.
        config: Its complete configuration.
        spec: The public schema of the records.
        purchases: The events of what was bought on these records, such as entries of the schema.
        records: The training records, sealed.
        protected: Who is protected, and what is public of the data.
        public_rows: The public records on which the monitor tests, if any.
        layout: How the units lie on the devices.
        in_memory: The bytes that the records take.
        origin: How the run starts.
        public_config: The content of the run's config.json.
        assign: From the secret key of the run to the partition of the records among the units.
        grouping: From the secret key of a journal to a digest of which records belong together.
        content: A digest of what the records were read from, for the journal only; sealed.
    """

    request: Resolved
    method: Method
    config: MethodConfig
    spec: Spec
    purchases: Events
    records: Private[Records]
    protected: Protected
    public_rows: monitor.Rows | None
    layout: teachers.Layout
    in_memory: capacity.Footprint
    origin: resume.Origin
    public_config: Json
    assign: Callable[[bytes], Partition]
    grouping: Callable[[bytes], str]
    content: Private[str]

    @property
    def files(self) -> RunFolder:
        """The run folder, which need not exist yet."""
        return self.origin.files

    @property
    def is_open_ended(self) -> bool:
        """Whether queries without an answer leave budget for more steps than are planned.

        They do not where the user named the number of steps.
        """
        return self.method.mechanism.cost_depends_on_answers and not self.request.config.steps


LONGEST_NAME = 200
"""The most characters of the name of who made a release."""


def declare(request: Resolved, dataset: Dataset, log: Log) -> Declared:
    """Completes the configuration from the budget and builds the method.

    Raises:
        UserError: For a request that contradicts itself.
        BudgetExceeded: Where the budget does not allow the request.
    """
    if request.resume and request.out is None:
        raise UserError(f"{option('resume', True)} needs {option('out')}, the folder of the run to "
                        "resume")
    maker = request.stated.made_by if request.stated else None
    if maker is not None and not (maker.isprintable() and 0 < len(maker.strip()) <= LONGEST_NAME):
        raise UserError(f"{option('made_by')} must be one line of at most {LONGEST_NAME} printable "
                        "characters")
    require_32_bits()
    spec = dataset.spec
    root = request.out or run_folder.default_root(request.method, dataset.name)
    origin = resume.decide(root, request.resume)
    bought = side_releases.purchases(dataset.bought)
    if origin.bought:
        bought = larger_counts(bought, origin.bought)
    purchases = (*bought,
                 *monitor.judging_cost(request.monitor, request.config.protects_clients))
    request = _without_class_counts(request, spec)
    refuse_subjects(request.method, request.config, dataset)
    config = with_records(request.config, dataset.count)
    config = complete(request.method, config, spec, request.budget, purchases, dataset.bought_unit)
    mechanism = methods.get(request.method).mechanism(config, spec)
    for line in (data_line(dataset), method_line(request),
                 promise_line(request, mechanism, dataset)):
        log(line)
    for line in (*unprotected_clients(request, dataset), *request.remarks):
        log(f"note: {line}")
    runtime = request.runtime
    if origin.compute and runtime.compute == Runtime.compute:
        runtime = dataclasses.replace(runtime, compute=origin.compute)
    runtime = capacity.fitting(request.method, config, spec, runtime, log, origin.moments)
    method = capacity.units_in_precision(methods.get(request.method).build(config, spec, runtime),
                                         runtime.compute)
    monitor.require_same_relation(request.monitor, method.mechanism)
    return Declared(dataclasses.replace(request, runtime=runtime), dataset, config, purchases,
                    method, origin)


def _without_class_counts(request: Resolved, spec: Spec) -> Resolved:
    """Returns the request, which buys no class counts where rows have no label."""
    if not (isinstance(spec, TableSpec) and not spec.labelled):
        return request
    return dataclasses.replace(request, budget=dataclasses.replace(
        request.budget, class_epsilon=0.0))


def check(declared: Declared, log: Log, notices: Notices) -> Checked:
    """Checks the records against what is declared, seals them, and says who will be protected.

    Raises:
        UserError: For records that do not fit the schema or the method, for public fields that
            were read from them unless that is accepted, and for a monitor that cannot work.
    """
    request, dataset, method = declared.request, declared.dataset, declared.method
    records = sealing.seal(dataset.x_train, dataset.y_train, dataset.spec)
    if method.refinement:
        log(f"note: {method.refinement.check()}")
    side_releases.refuse_useless(method, request.budget.class_epsilon)
    public_rows = monitor.prepare(request.monitor, dataset.spec, method.predict is not None)
    judged = monitor.judging_cost(request.monitor, request.config.protects_clients)
    if judged != declared.purchases[len(declared.purchases) - len(judged):]:
        raise UserError(f"the run of {option('public_dataset', request.monitor.public_dataset)} "
                        "continued while this one started, and its release costs more now; start "
                        "again")
    dataset = monitor.checked_judge(request.monitor, dataset, public_rows)
    protected = protected_by(method, dataset)
    if not request.accept_uncovered:
        refuse_uncovered(dataset, request.budget, request.seed)
    warnings = protection_warnings(request.budget, request.seed, declared.config, protected)
    if sources.is_built_in(dataset.options):  # whose delta protects nobody
        warnings = tuple(line for line in warnings if line.startswith(GUARANTEE))
    for line in dataset.notes:
        (log if documents.is_warning(line) else request.details(log))(f"note: {line}")
    for line in warnings:
        log(f"note: {line}")
    for line in dataset.private_notes:
        notices.private(line)
    return Checked(declared, records, protected, public_rows)


def plan(checked: Checked) -> Plan:
    """Decides where the run is computed and where it is kept.

    Raises:
        UserError: Where devices are missing, the units do not fit into memory, or the disk has no
            room for a checkpoint.
        TypeError: For a function of the method that gives other shapes or types than it must.
    """
    declared, protected = checked.declared, checked.protected
    request, dataset, method = declared.request, declared.dataset, declared.method
    root = declared.origin.files.root
    slots = unit_slots(method, declared.config, dataset)
    of_a_unit = capacity.of_a_unit(dataset, slots // method.mechanism.n_units)
    layout = capacity.choose_layout(
        method, request.runtime, protected.unit.rows or 1, RunFolder(root).private, of_a_unit)
    storage.refuse_remote(root)
    if request.release_to:
        storage.check_destination(request.release_to)
    capacity.check_memory(method, request.runtime)
    in_memory = capacity.footprint(dataset, slots, layout)
    capacity.check_records(in_memory, method, layout, protected.unit.kind)
    capacity.check_disk(root, method, request.runtime)
    loop.check(method, of_a_unit)
    bundle.check(method, dataset.spec)
    return Plan(
        request=request, method=method, config=declared.config, spec=dataset.spec,
        purchases=declared.purchases, records=checked.records, protected=protected,
        public_rows=checked.public_rows, layout=layout, in_memory=in_memory,
        origin=declared.origin,
        public_config=public_config(request, declared.config, dataset, protected),
        assign=lambda key: dealt(method, declared.config, dataset, key),
        grouping=lambda key: sealing.grouping(owners(dataset, protected), key),
        content=Private(dataset.content))


def public_config(request: Resolved, config: MethodConfig, dataset: Dataset, protected: Protected
                  ) -> Json:
    """Returns the content of a run's config.json, none of which depends on a record."""
    # Names of classes stand apart: the ledger's hash of what decides the cost is without them.
    spec = to_json(dataset.spec)
    names = spec.pop("class_names", [])
    spec.pop("targets", None)  # these concern evaluations only
    described: Json = to_json({
        "method": request.method, "preset": request.preset, "dataset": dataset.name,
        "records": protected.counts.get("records"), "spec": spec, "class_names": names,
        "config": config, "budget": request.budget, "runtime": request.runtime,
        "seed": request.seed, "data_notes": dataset.notes, "data_options": dataset.options,
        "not_covered": protected.uncovered, "simulated": protected.simulated})
    if protected.unit.kind == Unit.SUBJECT:  # what is said of records is as it always was
        described["unit"] = to_json({**protected.unit.terms, **protected.counts})
    if protected.bought_from:
        described["bought_from"] = to_json(protected.bought_from)
    # What was bought of a table stands in its schema.
    bought = dataset.options.get("kind") == "folder" and dataset.bought
    return described | ({"request": request.stated.to_json()} if request.stated else {}) | (
        {"bought": list(dataset.bought)} if bought else {}) | (
        {"made_by": request.stated.made_by} if request.stated and request.stated.made_by else {}
    ) | (
        {"judged_by": judge} if (judge := monitor.judge_identity(request.monitor)) else {})


DEALT = "records as dealt"
COPIES = 2
"""Copies of records that may not lie in mapped files: as read and as dealt."""
SMALLEST = 5e4
"""The fewest bytes of a part that is named: what is shown as 0.0 MB is of no use."""
FURTHER = "about a gigabyte for programs, reading and writing"
"""The memory that does not follow from shapes; `benchmarks.large_table` measures it for
`marginals`."""


def memory_line(plan: Plan) -> str:
    """Returns what lies in memory in a run; what a compiled step takes is not included.

    Args:
        plan: The plan of the run.
    """
    where = plan.request.runtime.state
    state = capacity.state_bytes(plan.method)
    slabs = capacity.SLABS * plan.layout.slab * teachers.unit_bytes(plan.method)
    in_memory = {"device": {"the state of units": state},
                 "host": {"the state of units, in the host's memory": state,
                          "the units that are read, computed and written": slabs},
                 "disk": {"the units that are read, computed and written": slabs}}[where]
    parts = {**in_memory,
             "a sum with its noise": capacity.sum_bytes(plan.method),
             "the public side": capacity.public_bytes(plan.method)}
    if plan.protected.unit.kind == Unit.RECORD:  # of others the number of records is private
        parts |= {"records as read": plan.in_memory.read, DEALT: plan.in_memory.dealt,
                  "records on each device": plan.in_memory.on_device}
    listed = ", ".join(f"{_size(count)} for {name}" for name, count in parts.items()
                       if count >= SMALLEST or name == DEALT)
    return (f"memory: {listed or 'less than 0.1 MB'}, and {FURTHER}; this machine has "
            f"{_size(capacity.memory())}{_saved(plan)}")


def supposed_memory(method: Method, spec: Spec, records: int) -> str:
    """Returns what lies in memory in a run whose plan is not known yet, in all.

    Args:
        method: The method, built.
        spec: The schema of the records.
        records: Their number.
    """
    return _size(capacity.state_bytes(method) + capacity.sum_bytes(method)
                 + capacity.public_bytes(method) + COPIES * _records(spec, records))


def _records(spec: Spec, n: int) -> int:
    """The bytes of n records."""
    return n * math.prod(spec.shape) * np.dtype(spec.dtype).itemsize


def _saved(plan: Plan) -> str:
    """Says what checkpoints take, and the state where it lies on the disk."""
    where, waits = plan.request.runtime.state, "; the training waits for its checkpoints"
    if where == "device" and capacity.copy_fits(plan.method):
        return "; while a checkpoint is written, the state takes twice its memory"
    if where == "device":
        return f"{waits}, since a second copy of the state does not fit"
    on_disk = (f"; disk: {_size(capacity.state_bytes(plan.method))} for the state of units, and as "
               f"much for each checkpoint, of {_size(capacity.disk(plan.files.root))}")
    return on_disk * (where == "disk") + waits


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(count, 1) / 1e6:.1f} MB"
