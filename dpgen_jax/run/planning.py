"""The stages of a run that write and spend nothing: declare, check, plan.

All that can be wrong with a request or its records is found here, before there is a run folder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import get_args

from dpgen_jax import methods
from dpgen_jax.accountant.events import Events
from dpgen_jax.core import storage
from dpgen_jax.core.config import Compute, to_json
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.terms import Unit
from dpgen_jax.core.types import Method, Private, Records, Spec, TableSpec, UserError
from dpgen_jax.data import Dataset
from dpgen_jax.methods.shared import precision
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.private import records as sealing
from dpgen_jax.private import teachers
from dpgen_jax.private.partition import Partition
from dpgen_jax.release import model
from dpgen_jax.release.statement import Protected
from dpgen_jax.run import (
    capacity,
    first_lines,
    folder,
    judging,
    monitor,
    protection,
    record_memory,
    rounds,
    side_releases,
)
from dpgen_jax.run.calibrate_config import complete, with_records
from dpgen_jax.run.folder import RunFolder, read_json
from dpgen_jax.run.loop import require_32_bits
from dpgen_jax.run.progress import Notices
from dpgen_jax.run.request import Request

Log = Callable[[str], None]
"""Prints a line of a run."""


@dataclasses.dataclass(frozen=True)
class Declared:
    """A request of which everything that decides meaning and cost is known.

    Attributes:
        request: The request, with a runtime that fits this machine.
        dataset: The records, not sealed yet, and their public schema.
        config: The method's configuration, with both its noise and its number of steps.
        purchases: The events of what was bought on these records, such as entries of the schema.
        method: The method of that configuration.
    """

    request: Request
    dataset: Dataset
    config: MethodConfig
    purchases: Events
    method: Method


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
        request: What the user asked for.
        method: The method, built.
        config: Its complete configuration.
        spec: The public schema of the records.
        purchases: The events of what was bought on these records, such as entries of the schema.
        records: The training records, sealed.
        protected: Who is protected, and what is public of the data.
        public_rows: The public records on which the monitor tests, if any.
        layout: How the units lie on the devices.
        in_memory: The bytes that the records take.
        files: The run folder, which need not exist yet.
        public_config: The content of the run's config.json.
        assign: From the secret key of the run to the partition of the records among the units.
        grouping: From the secret key of a journal to a digest of which records belong together.
        content: A digest of what the records were read from, for the journal alone; sealed.
    """

    request: Request
    method: Method
    config: MethodConfig
    spec: Spec
    purchases: Events
    records: Private[Records]
    protected: Protected
    public_rows: monitor.Rows | None
    layout: teachers.Layout
    in_memory: record_memory.Footprint
    files: RunFolder
    public_config: Json
    assign: Callable[[bytes], Partition]
    grouping: Callable[[bytes], str]
    content: Private[str]

    @property
    def is_open_ended(self) -> bool:
        """Whether queries without an answer leave budget for more steps than are planned.

        They do not where the user named the number of steps.
        """
        return self.method.mechanism.cost_depends_on_answers and not self.request.config.steps


def declare(request: Request, dataset: Dataset, log: Log) -> Declared:
    """Completes the configuration from the budget and builds the method.

    Args:
        request: What the user asked for.
        dataset: The records and their public schema.
        log: Prints a line of the run.

    Returns:
        The declared run.

    Raises:
        UserError: For a request that contradicts itself.
        BudgetExceeded: Where the budget does not allow what was asked for.
    """
    if request.resume and request.out is None:
        raise UserError("--resume needs --out, the folder of the run to go on with")
    require_32_bits()
    spec = dataset.spec
    bought = side_releases.purchases(dataset.bought)
    if request.resume and request.out:
        bought = side_releases.with_those_of(RunFolder(request.out), bought)
    purchases = (*bought,
                 *judging.cost(request.monitor, request.config.protects_clients))
    request = _without_class_counts(request, spec)
    protection.refuse_subjects(request.method, request.config, dataset)
    config = with_records(request.config, dataset.count)
    config = complete(request.method, config, spec, request.budget, purchases, dataset.bought_unit)
    log(first_lines.headline(request, methods.get(request.method).mechanism(config, spec), dataset))
    for line in (*first_lines.unprotected_clients(request, dataset), *request.remarks):
        log(f"note: {line}")
    begun = _begun(request)
    runtime = precision.as_begun(request.runtime, begun.get("compute"))
    runtime = capacity.fitting(request.method, config, spec, runtime, log, begun.get("moments"))
    method = precision.units_in(methods.get(request.method).build(config, spec, runtime),
                                runtime.compute)
    judging.require_same_relation(request.monitor, method.mechanism)
    return Declared(dataclasses.replace(request, runtime=runtime), dataset, config, purchases,
                    method)


def _begun(request: Request) -> Json:
    """Returns the precisions in which a run that goes on began; empty where nothing says them.

    Raises:
        UserError: The run's config.json is damaged.
    """
    if not request.resume or request.out is None:
        return {}
    path = RunFolder(request.out).config
    written = read_json(path).get("runtime", {}) if path.is_file() else {}
    if not isinstance(written, dict):
        raise UserError(f"{path} is damaged: its runtime is no object; bring the file back")
    return {name: value for name, value in written.items() if value in get_args(Compute)}


def _without_class_counts(request: Request, spec: Spec) -> Request:
    """Returns the request, which buys no class counts where rows have no label."""
    if not (isinstance(spec, TableSpec) and not spec.labelled):
        return request
    return dataclasses.replace(request, budget=dataclasses.replace(
        request.budget, class_epsilon=0.0))


def check(declared: Declared, log: Log, notices: Notices) -> Checked:
    """Checks the records against what is declared, seals them, and says who will be protected.

    Args:
        declared: The declared run.
        log: Prints a line of the run.
        notices: Tells the data holder what concerns nobody else.

    Returns:
        The checked run.

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
    judged = judging.cost(request.monitor, request.config.protects_clients)
    if judged != declared.purchases[len(declared.purchases) - len(judged):]:
        raise UserError(f"the run of --public-dataset {request.monitor.public_dataset} went on "
                        "while this one started, and its release costs more now; start again")
    dataset = judging.checked(request.monitor, dataset, public_rows)
    protected = protection.protected(method, dataset)
    if not request.accept_uncovered:
        protection.refuse_uncovered(dataset, request.budget, request.seed)
    warnings = protection.warnings(request.budget, request.seed, declared.config, protected)
    for line in (*dataset.notes, *warnings):
        log(f"note: {line}")
    for line in dataset.private_notes:
        notices.private(line)
    return Checked(declared, records, protected, public_rows)


def plan(checked: Checked) -> Plan:
    """Decides where the run is computed and where it is kept.

    Args:
        checked: The checked run.

    Returns:
        The whole plan.

    Raises:
        UserError: Where devices are missing, the units do not fit into memory, or the disk has no
            room for a checkpoint.
        TypeError: For a function of the method that gives other shapes or types than it must.
    """
    declared, protected = checked.declared, checked.protected
    request, dataset, method = declared.request, declared.dataset, declared.method
    root = request.out or folder.default_root(request.method, dataset.name)
    slots = protection.slots(method, declared.config, dataset)
    of_a_unit = record_memory.of_a_unit(dataset, slots // method.mechanism.n_units)
    layout = capacity.choose_layout(
        method, request.runtime, protected.rows_per_unit or 1, RunFolder(root).private, of_a_unit)
    storage.refuse_remote(root)
    if request.release_to:
        storage.check_destination(request.release_to)
    capacity.check_memory(method, request.runtime)
    in_memory = record_memory.footprint(dataset, slots, layout)
    record_memory.check(in_memory, method, layout, protected.unit)
    capacity.check_disk(root, method, request.runtime)
    rounds.check(method, of_a_unit)
    model.check(method, dataset.spec)
    return Plan(
        request=request, method=method, config=declared.config, spec=dataset.spec,
        purchases=declared.purchases, records=checked.records, protected=protected,
        public_rows=checked.public_rows, layout=layout, in_memory=in_memory,
        files=RunFolder(root),
        public_config=public_config(request, declared.config, dataset, protected),
        assign=lambda key: protection.dealt(method, declared.config, dataset, key),
        grouping=lambda key: sealing.grouping(protection.owners(dataset, protected), key),
        content=Private(dataset.content))


def public_config(request: Request, config: MethodConfig, dataset: Dataset, protected: Protected
                  ) -> Json:
    """Returns the content of a run's config.json, none of which depends on a record."""
    # Names of classes stand apart: the ledger's hash of what decides the cost is without them.
    spec = to_json(dataset.spec)
    names = spec.pop("class_names", [])
    spec.pop("targets", None)  # these concern evaluations alone
    described: Json = to_json({
        "method": request.method, "preset": request.preset, "dataset": dataset.name,
        "records": protected.counts.get("records"), "spec": spec, "class_names": names,
        "config": config, "budget": request.budget, "runtime": request.runtime,
        "seed": request.seed, "data_notes": dataset.notes, "data_options": dataset.options,
        "not_covered": protected.uncovered, "simulated": protected.simulated})
    if protected.unit == Unit.SUBJECT:  # what is said of records is as it always was
        described["unit"] = to_json({**protected.terms, **protected.counts})
    if protected.bought_from:
        described["bought_from"] = to_json(protected.bought_from)
    # What was bought of a table stands in its schema.
    bought = dataset.options.get("kind") == "folder" and dataset.bought
    return described | ({"typed": list(request.typed)} if request.typed else {}) | (
        {"bought": list(dataset.bought)} if bought else {}) | (
        {"judged_by": judge} if (judge := judging.identity(request.monitor)) else {})
