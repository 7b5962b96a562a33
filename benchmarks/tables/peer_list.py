"""The peers: what is installed for each, what its epsilon is for, and what it does not pay for."""

from __future__ import annotations

from benchmarks.tables.methods import Peer

ADDED = "add or remove one row"
_DPMM = Peer(("dpmm==0.1.9",), "with_dpmm", {}, ADDED,
             "whether a column has nulls, and whether it has one value alone")
_SMARTNOISE = Peer(("smartnoise-synth==1.0.8",), "with_smartnoise", {}, ADDED, "")


def _also(peer: Peer, note: str = "", **options: str) -> Peer:
    return Peer(peer.requirements, peer.program, options, peer.relation, peer.reads, note, peer.pip)


PEERS: dict[str, Peer] = {
    "dpmm-mst": _also(_DPMM, pipeline="MSTPipeline"),
    "dpmm-aim": _also(_DPMM, pipeline="AIMPipeline"),
    "dpmm-privbayes": _also(_DPMM, pipeline="PrivBayesPipeline"),
    "mbi-mst": Peer(("mbi==2.0.0", "pandas", "networkx", "scipy"), "with_mbi", {}, ADDED, "nothing",
                    "mbi is the estimator; the mechanism MST is this benchmark's own"),
    "smartnoise-mst": _also(_SMARTNOISE, synthesizer="mst"),
    "smartnoise-aim": _also(_SMARTNOISE, synthesizer="aim"),
    "smartnoise-patectgan": _also(_SMARTNOISE, synthesizer="patectgan"),
    "smartnoise-dpctgan": _also(_SMARTNOISE, synthesizer="dpctgan"),
}
"""Name -> the peer."""
