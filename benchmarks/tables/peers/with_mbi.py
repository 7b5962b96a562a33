"""Private-PGM (mbi) as the estimator behind the mechanism MST, which its wheel does not contain.

A third of the budget in zero-concentrated privacy each: all columns, the choice of a spanning tree
by the exponential mechanism, and the tree's pairs (McKenna, Miklau and Sheldon 2021). Numbers are
in equal bins between their declared bounds. Its noise is of floating-point numbers.

`squared_sensitivity` of a table of counts is 1 where a row is added or removed, and 2 where it is
replaced, which moves an L1 distance by as much.
"""

import itertools
import math
import time

import jax
import job
import networkx as nx
import numpy as np
import pandas as pd
from scipy.optimize import brentq

jax.config.update("jax_enable_x64", True)  # as mbi asks for, before it is imported
import mbi  # noqa: E402


def rho_of(epsilon, delta):
    """Return the largest rho whose zero-concentrated privacy implies (epsilon, delta)."""
    def least_delta(rho):
        orders = 1 + np.exp(np.linspace(-5, 9, 4000))
        logs = ((orders - 1) * (orders * rho - epsilon) + orders * np.log1p(-1 / orders)
                - np.log(orders - 1))
        return logs.min() - math.log(delta)
    return brentq(least_delta, 1e-9, 10 * epsilon + 10)


def counts(codes, sizes, clique):
    """Return the table of counts of some columns, flat."""
    flat = np.zeros(len(codes), np.int64)
    for name in clique:
        flat = flat * sizes[name] + codes[name].to_numpy()
    return np.bincount(flat, minlength=math.prod(sizes[name] for name in clique)).astype(float)


def measured(codes, sizes, cliques, rho, squared_sensitivity, rng):
    sigma = math.sqrt(squared_sensitivity * len(cliques) / (2 * rho))
    return [mbi.LinearMeasurement(
        (table := counts(codes, sizes, clique)) + rng.normal(0, sigma, table.size), clique, sigma)
        for clique in cliques]


def tree(codes, sizes, model, rho, sensitivity, rng):
    """Return the pairs of a spanning tree, each drawn by its distance from independent columns."""
    names = list(sizes)
    pairs = list(itertools.combinations(names, 2))
    single = {name: np.asarray(model.project((name,)).datavector()).ravel() for name in names}
    gains = np.array([np.abs(counts(codes, sizes, (a, b)) - np.outer(
        single[a], single[b]).ravel() / single[a].sum()).sum() for a, b in pairs])
    graph, epsilon = nx.Graph(), math.sqrt(8 * rho / (len(names) - 1))
    graph.add_nodes_from(names)
    for _ in range(len(names) - 1):
        part = {name: i for i, members in enumerate(nx.connected_components(graph))
                for name in members}
        free = [i for i, (a, b) in enumerate(pairs) if part[a] != part[b]]
        scores = gains[free] * epsilon / (2 * sensitivity)
        weights = np.exp(scores - scores.max())
        graph.add_edge(*pairs[free[rng.choice(len(free), p=weights / weights.sum())]])
    return [pair for pair in pairs if graph.has_edge(*pair)]


def main():
    task, columns, frame = job.read()
    rng = np.random.default_rng()
    names = {f"c{i}": name for i, name in enumerate(columns)}
    started = time.process_time()
    codes, sizes = job.coded(frame, columns)
    codes.columns, sizes = list(names), dict(zip(names, sizes.values(), strict=True))
    domain = mbi.Domain(list(sizes), list(sizes.values()))
    third = rho_of(task["epsilon"], task["delta"]) / 3
    squared = task["squared_sensitivity"]
    single = measured(codes, sizes, [(name,) for name in sizes], third, squared, rng)
    fit = mbi.estimation.MirrorDescent().estimate
    first = fit(domain, single, iters=250)
    chosen = tree(codes, sizes, first, third, squared, rng)
    pairs = measured(codes, sizes, chosen, third, squared, rng)
    synthetic = fit(domain, single + pairs, iters=1000).synthetic_data(rows=task["n"])
    synthetic = pd.DataFrame(synthetic.to_dict()).rename(columns=names)
    job.report(cpu_seconds_without_files=time.process_time() - started)
    job.write(job.decoded(synthetic, columns, rng), columns)


if __name__ == "__main__":
    main()
