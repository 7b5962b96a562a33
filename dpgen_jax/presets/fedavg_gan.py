"""Named configurations of Fed-Avg GAN, each with its source.

The promise is for all data of a client, so what counts is the number of clients. The presets of
this library query all of them in every round, for one step on all their records: at a given budget
the total signal over noise grows with the clients that answer, and not with the rounds.
`-published` keep the rounds, clients and local steps of Augenstein et al., whose own noise, a
hundredth of the clip, promises nothing; here it is found from the budget. Where 1,000 clients add
the noise themselves (`federated`), epsilon 10 leaves nothing to recognise: it takes many more.
"""

import dataclasses

from dpgen_jax.core.types import ImageSpec
from dpgen_jax.methods.fedavg_gan import Config
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.image import GeneratorNet
from dpgen_jax.nets.pair import ConvNet
from dpgen_jax.presets import GLYPHS, Preset, serving, stated

AUGENSTEIN = "Augenstein et al. 2020 and its code, with noise found from the budget"
OURS = "this library: chosen on glyphs, whose records are public"
MNIST, FEMNIST = ImageSpec(28, 28, 1, 10), ImageSpec(28, 28, 1, 62)

SMALL = Config(clients=1000, client_records=30, client_steps=1, client_batch=30, client_rate=0.02,
               pool=8, steps=100, g_batch=64, g_steps=2, ema=0.9,
               generator=GeneratorNet(16, 128, 16), discriminator=ConvNet(8, 16),
               g_optimiser=Adam(2e-3))
MANY = dataclasses.replace(SMALL, clients=2000)
WRITERS = dataclasses.replace(SMALL, clients=3400, client_records=128, client_batch=128)
PUBLISHED = Config(clients=1000, clients_per_round=10, client_records=60, steps=1000,
                   generator=GeneratorNet(128, 1024, 64), discriminator=ConvNet(64, 128),
                   g_optimiser=Adam(1e-4))
CLIENTS = dataclasses.replace(SMALL, federated=True, steps=20, discriminator=ConvNet(4, 8))

DIFFERS = (
    "noise is found from the budget: the paper's, a hundredth of the clip, promises nothing",
    "networks have no batch normalisation, whose statistics would have to be released as well",
    "fakes are conditional on labels, and clients learn from one public pool of them a round",
    "clients are drawn by Poisson sampling, about 10 a round; the paper draws exactly 10",
    "Adam trains the generator")


PRESETS = stated({
    "glyphs": Preset(SMALL, GLYPHS, 10.0, 1e-5, 30000, OURS, dataset="glyphs"),
    "mnist": Preset(MANY, MNIST, 10.0, 1e-5, 60000, OURS),
    "femnist": Preset(WRITERS, FEMNIST, 10.0, 1e-5, 671585, OURS, dataset="femnist"),
    "federated": Preset(CLIENTS, GLYPHS, 10.0, 1e-5, 30000, OURS, dataset="federated"),
    "mnist-published": Preset(PUBLISHED, MNIST, 10.0, 1e-5, 60000, AUGENSTEIN),
    "femnist-published": Preset(dataclasses.replace(PUBLISHED, clients=3400, client_records=256),
                                FEMNIST, 10.0, 1e-5, 671585, AUGENSTEIN),
}, {AUGENSTEIN: DIFFERS})
PRESETS = serving(PRESETS, ("mnist",), {"images": "mnist"})
