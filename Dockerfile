# LLM-PO in a container: the web server and the control worker; `--target gpu` also has vLLM. compose.yaml uses both.
FROM python:3.11-slim AS base
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 VAR_DIR=/var/lib/llm-po
WORKDIR /app
COPY requirements.txt .
RUN pip install -r requirements.txt
RUN useradd --system --create-home --home-dir /var/lib/llm-po llmpo \
  && install --directory --owner llmpo /var/lib/llm-po/.cache /var/lib/llm-po/.cache/huggingface
COPY manage.py ./
COPY llmpo_site llmpo_site
COPY engine engine
COPY labeling labeling
COPY templates templates
COPY static static

FROM base AS gpu
COPY requirements-gpu.txt .
# vLLM compiles small kernels for the card that it finds.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends build-essential \
  && rm -rf /var/lib/apt/lists/* \
  && pip install -r requirements-gpu.txt
USER llmpo

FROM base AS app
USER llmpo
# Static files need the settings, and those a key, which nothing keeps.
RUN SECRET_KEY=only-while-the-image-is-built-0123456789 python manage.py collectstatic --noinput
