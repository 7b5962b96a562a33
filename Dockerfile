# Runs the README's first command, or any other command of the package, as an ordinary user.
#
#   docker build -t dpgen_jax .                             for CPU
#   docker build -t dpgen_jax --build-arg JAX=cuda12 .      for NVIDIA GPUs (run with --gpus all)
#   docker run --rm -v dpgen:/home/dpgen/work dpgen_jax
#
# The volume keeps the runs and the journal of what they spent: without it, both end with the
# container, and a later run on the same records cannot know what was spent before.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
WORKDIR /source
COPY pyproject.toml setup.cfg README.md LICENSE ./
COPY dpgen_jax dpgen_jax
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim
# The build of JAX, as its installation guide names it: cpu, cuda12, cuda13.
ARG JAX=cpu
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "jax[${JAX}]" /wheels/*.whl
RUN useradd --create-home --uid 1000 dpgen \
    && install -d -o dpgen -g dpgen /home/dpgen/work
USER dpgen
WORKDIR /home/dpgen/work
ENV DPGEN_STATE=/home/dpgen/work/state \
    MPLCONFIGDIR=/tmp/matplotlib \
    PYTHONUNBUFFERED=1
CMD ["python", "-m", "dpgen_jax.train"]
