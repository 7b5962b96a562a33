"""PATE-GAN (Jordon, Yoon and van der Schaar, ICLR 2019), conditional on the label.

Unit: a teacher discriminator, which learns to tell its own records from public fakes and answers
each queried fake with one vote: real or fake. The noisy count of votes labels the fake; a public
student discriminator learns from fakes so labelled and from nothing else, and the generator learns
from the student. The conversation between teachers and public pool is that of `_skeleton`.

Beyond the paper, at the same price: `decode` "share" gives the student the noisy share of the votes
instead of its majority, `vote` "rank" has a teacher say which of the fakes of a class are more real
than their average, and the student keeps the labels of earlier queries. Where every teacher calls
every fake fake, as well-trained ones do, the published labels are all 0 and teach nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from dpgen_jax.aggregation.label_votes import LabelMechanism, LabelVotes, Majority, Share
from dpgen_jax.aggregation.laplace import DiscreteLaplace
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import Everyone
from dpgen_jax.config import Runtime
from dpgen_jax.methods import _skeleton
from dpgen_jax.nets.adam import Adam, AdamState, moving_average
from dpgen_jax.nets.blocks import leaky_relu
from dpgen_jax.nets.losses import generator_loss
from dpgen_jax.nets.pair import pair
from dpgen_jax.types import Array, Method, Records, Spec, UserError


@dataclasses.dataclass(frozen=True)
class Config(_skeleton.TeacherConfig):
    """What PATE-GAN computes. `sigma` is the standard deviation of Gaussian noise on a count of
    votes, or the scale of Laplace noise, 1 / lambda in the paper."""

    noise: Literal["gaussian", "laplace"] = "gaussian"
    """on the count of votes; Gaussian noise composes better, the paper's is Laplace"""
    decode: Literal["majority", "share"] = "share"
    """what the student is told: the paper's majority, whose votes are kept in private/ for
    data-dependent accounting, or the noisy share of the teachers"""
    vote: Literal["real", "rank"] = "rank"
    """real: the paper's, a teacher's own opinion; rank: whether a fake is more real than the mean
    of the queried fakes of its class"""
    abstain: bool = True
    """teachers toss a coin for fakes of a class of which they hold no record"""
    memory: int = 20
    """queries from which the student learns: the last ones"""
    s_steps: int = 20
    """student steps after each query"""
    g_steps: int = 10
    """generator steps after each query"""
    d_steps: int = 2
    d_steps_first: int = 5
    jitter: float = 0.1
    """standard deviation of the public noise by which queried fakes are moved, so that their labels
    tell of more than what the generator makes already"""
    s_hidden: int = 64
    """hidden units of the student"""
    s_optimiser: Adam = Adam(2e-3)

    positive = (*_skeleton.TeacherConfig.positive, "memory", "s_steps", "g_steps", "s_hidden")

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.jitter < math.inf:
            raise UserError(f"jitter is {self.jitter}; it must be 0 (none) or above")


def mechanism(config: Config, spec: Spec) -> LabelMechanism:
    """The noisy count of teachers that call a fake real. Unit: a record, through its teacher;
    replace-one; each of the B counts of a step moves by at most 1."""
    laplace = config.noise == "laplace" and config.sigma
    return LabelMechanism(
        bound=LabelVotes(config.batch), schedule=Everyone(), n_units=config.teachers,
        shape=(config.batch, 1),
        noise=DiscreteLaplace(config.sigma) if laplace else gaussian(config.sigma),
        decode=Majority() if config.decode == "majority" else Share())


@dataclasses.dataclass(frozen=True)
class Student:
    """The public discriminator: for each class a linear function of the D features of a record, and
    one hidden layer for all classes.

    Fakes of one class lie close together, and what is asked is in which way they differ. So it
    reads how far a fake lies from the centre of its class in the query it belongs to: `rank` votes
    compare fakes of one query, and say nothing of how two queries differ.
    """

    hidden: int
    features: int
    classes: int

    def init(self, key: Array) -> dict[str, Array]:
        """The weights."""
        width = self.features + self.classes
        return {"linear": jnp.zeros((self.classes, self.features)),
                "hidden": jax.random.normal(key, (width, self.hidden)) / math.sqrt(width),
                "bias": jnp.zeros(self.hidden), "out": jnp.zeros(self.hidden),
                "label": jnp.zeros(self.classes)}

    def apply(self, params: dict[str, Array], away: Array, labels: Array) -> Array:
        """Logits [N] of fakes away [N, D] from their centre, with labels int [N]."""
        onehot = jax.nn.one_hot(labels, self.classes)
        h = leaky_relu(jnp.concatenate([away, onehot], 1) @ params["hidden"] + params["bias"])
        linear = jnp.sum(away * params["linear"][labels], 1) / math.sqrt(self.features)
        return linear + h @ params["out"] + params["label"][labels]

    def centres(self, x: Array, labels: Array, before: Array) -> Array:
        """[C, D]: the mean of x [N, D] of each class; of a class without any, the one before."""
        onehot = jax.nn.one_hot(labels, self.classes)
        held = onehot.sum(0)[:, None]
        return jnp.where(held > 0, onehot.T @ x / jnp.maximum(held, 1), before)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """The generator's side as in `_skeleton`, the student with its optimiser, the centres [C, D] of
    the last query, and the memory of R queries: how far fakes lay from their centre [R, B, D],
    labels [R, B], and told [R, B], what the teachers were heard to say of them. All of it is a
    function of released values and public keys alone."""

    generator: _skeleton.Public
    student: Any
    optimiser: AdamState
    centres: Array
    away: Array
    labels: Array
    told: Array

    @property
    def step(self) -> Array:
        return self.generator.step


def coarse_noise(key: Array, shape: tuple[int, ...]) -> Array:
    """Standard normal noise [B, F], or [B, H, W, ch] in squares of 2 x 2 pixels: a quarter of the
    directions, about each of which votes tell four times as much."""
    if len(shape) == 2:
        return jax.random.normal(key, shape)
    b, height, width, channels = shape
    noise = jax.random.normal(key, (b, height // 2, width // 2, channels))
    return noise.repeat(2, 1).repeat(2, 2)


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """The method for records of this schema."""
    held = mechanism(config, spec)
    # Teachers learn and the generator samples as in the skeleton; its answers are gradients, and
    # its generator is fitted to moved fakes: those two are PATE-GAN's own.
    base = _skeleton.converse(config, spec, runtime, held, message=lambda question, gradients: (),
                              direction=lambda question, released: released)
    net_g, net_d = pair(spec, config.generator, config.discriminator, config.layers)
    columns = _skeleton.features(spec)
    net_s = Student(config.s_hidden, columns, spec.classes)
    g = config.g_optimiser
    rate = optax.linear_schedule(g.learning_rate, g.learning_rate * config.g_final_rate,
                                 config.g_steps * (config.steps or 1))
    g_adam = optax.adam(rate, g.beta1, g.beta2, g.epsilon)

    def init(key: Array) -> Public:
        k_generator, k_student = jax.random.split(key)
        student, kept = net_s.init(k_student), (config.memory, config.batch)
        return Public(base.init(k_generator), student, config.s_optimiser.init(student),
                      jnp.zeros((spec.classes, columns)), jnp.zeros((*kept, columns)),
                      jnp.zeros(kept, jnp.int32), jnp.zeros(kept))

    def ask(key: Array, public: Public) -> _skeleton.Query:
        k_base, k_jitter = jax.random.split(key)
        query = base.ask(k_base, public.generator)
        moved = query.fakes + config.jitter * coarse_noise(k_jitter, query.fakes.shape)
        return dataclasses.replace(query, fakes=jnp.clip(moved, 0, 1))

    def answer(key: Array, unit: Any, records: Records, query: _skeleton.Query) -> Array:
        params, _ = unit
        score = net_d.apply(params, query.fakes[None], query.labels[None])[0]
        if config.vote == "rank":
            same = query.labels[:, None] == query.labels
            score = score - same @ score / same.sum(1)
        coin = jax.random.rademacher(key, score.shape, jnp.float32)
        holds = jnp.any(records.y[:, None] == query.labels, 0) | (not config.abstain)
        return jnp.where(holds, score, coin)[:, None]

    def student_step(key: Array, state: tuple[Any, AdamState, Array], public: Public,
                     known: Array, unit: Array):
        """One step on remembered fakes; known: queries there are; unit: of distances."""
        k_query, k_fake = jax.random.split(key)
        chosen = (jax.random.randint(k_query, (config.batch,), 0, known),
                  jax.random.randint(k_fake, (config.batch,), 0, config.batch))
        away, labels, told = (a[chosen] for a in (public.away, public.labels, public.told))

        def loss(params):
            logits = net_s.apply(params, away / unit, labels)
            return jnp.mean(jax.nn.softplus(logits) - told * logits)

        value, grads = jax.value_and_grad(loss)(state[0])
        return *config.s_optimiser.update(state[0], grads, state[1]), value

    def generator_step(key: Array, state: tuple[_skeleton.Public, Array], public: Public,
                       unit: Array):
        k_z, k_labels = jax.random.split(key)
        labels = jax.random.randint(k_labels, (config.batch,), 0, spec.classes)
        z, side = net_g.latents(k_z, config.batch), state[0]

        def loss(params):
            fakes = net_g.generate(params, z, labels).reshape(config.batch, columns)
            away = (fakes - public.centres[labels]) / unit
            return jnp.mean(generator_loss(net_s.apply(public.student, away, labels)))

        value, grads = jax.value_and_grad(loss)(side.params)
        updates, optimiser = g_adam.update(grads, side.optimiser)
        params = optax.apply_updates(side.params, updates)
        return dataclasses.replace(side, params=params, optimiser=optimiser), value

    def remember(public: Public, query: _skeleton.Query, told: Array) -> Public:
        at, x = public.step % config.memory, query.fakes.reshape(config.batch, columns)
        centres = net_s.centres(x, query.labels, public.centres)
        return dataclasses.replace(
            public, centres=centres, away=public.away.at[at].set(x - centres[query.labels]),
            labels=public.labels.at[at].set(query.labels), told=public.told.at[at].set(told))

    def repeat(key: Array, times: int, step: Callable, state: Any, *given: Any) -> Any:
        return jax.lax.fori_loop(
            0, times, lambda i, s: step(jax.random.fold_in(key, i), s, *given), state)

    def absorb(key: Array, public: Public, query: _skeleton.Query, released: Array):
        k_student, k_generator = jax.random.split(key)
        told = released[:, 0]
        public = remember(public, query, told)
        known = jnp.minimum(public.step + 1, config.memory)
        unit = jnp.sqrt(jnp.sum(public.away**2) / (known * config.batch * columns) + 1e-6)
        student, optimiser, s_loss = repeat(
            k_student, config.s_steps, student_step,
            (public.student, public.optimiser, jnp.zeros(())), public, known, unit)
        public = dataclasses.replace(public, student=student, optimiser=optimiser)
        new, g_loss = repeat(k_generator, config.g_steps, generator_step,
                             (public.generator, jnp.zeros(())), public, unit)
        average = moving_average(new.average, new.params, config.ema, public.step + 1)
        new = dataclasses.replace(new, average=average, step=new.step + 1)
        metrics = {"student_loss": s_loss, "generator_loss": g_loss, "told_mean": jnp.mean(told),
                   "told_deviation": jnp.std(told)}
        return dataclasses.replace(public, generator=new), metrics

    def refine(key: Array, public: Public) -> Any:
        return base.refine(key, public.generator)

    return dataclasses.replace(base, init=init, ask=ask, answer=answer, absorb=absorb,
                               refine=refine)
