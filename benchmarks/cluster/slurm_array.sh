#!/usr/bin/env bash
# Five runs of one preset, which start themselves again until they are done: sbatch slurm_array.sh
#SBATCH --job-name=dpgen
#SBATCH --array=1-5
#SBATCH --time=01:00:00
#SBATCH --gres=gpu:1
#SBATCH --requeue
#SBATCH --open-mode=append
# SIGTERM comes 120 s before the end, and when the job is preempted.
#SBATCH --signal=B:TERM@120
set -u
RUN=${RUNS:-runs}/datalens-${SLURM_ARRAY_TASK_ID}
export DPGEN_STATE=${RUNS:-runs}/journal  # on the shared disk: the next machine must find it
if [ -e "$RUN/config.json" ]; then
  words=(--resume "$RUN")
else
  words=(datalens --preset mnist-eps1 --dataset "${DATA:-idx:mnist}" --out "$RUN"
         --max-minutes 50 --on-term checkpoint)
fi
child= stopped=  # a signal may come before the run has begun
trap 'stopped=1; [ -z "$child" ] || kill -TERM "$child"' TERM  # the shell gets it and tells the run
python -m dpgen_jax.train "${words[@]}" &
child=$!
[ -z "$stopped" ] || kill -TERM "$child"
wait "$child"; code=$?
while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
# 75: out of time, 143: told to stop. Either can go on.
case $code in 75|143) scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}" ;; esac
exit "$code"
