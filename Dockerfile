# The service in an image: docker build -t retriever . && docker run -p 127.0.0.1:8765:8765 \
#   -e RETRIEVER_TOKEN=... -v indexes:/indexes retriever
# Built by podman on a stand-in for the base, Debian 13 with Python 3.13; no container ran yet.
FROM python:3.13-slim AS build
ARG EXTRAS=cpu,offline,serve
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
COPY . /source
RUN python -m venv /opt/retriever \
 && /opt/retriever/bin/pip wheel --no-deps --wheel-dir /wheels /source/model/minilm /source \
 && /opt/retriever/bin/pip install --no-cache-dir -c /source/constraints.txt \
      /wheels/layer_retriever_minilm-*.whl \
 && /opt/retriever/bin/pip install --no-cache-dir -c /source/constraints.txt \
      "$(ls /wheels/layer_retriever-*.whl)[$EXTRAS]"

FROM python:3.13-slim
COPY --from=build /opt/retriever /opt/retriever
RUN useradd --system --uid 10001 --create-home retriever \
 && install --directory --owner retriever /indexes
USER retriever
WORKDIR /indexes
ENV PATH=/opt/retriever/bin:$PATH \
    RETRIEVER_CACHE=/indexes/.cache \
    RETRIEVER_INDEX=/indexes/docs.index
VOLUME /indexes
EXPOSE 8765
# The container's own address is reached from outside: serve asks for RETRIEVER_TOKEN.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/health', timeout=4)"]
ENTRYPOINT ["retriever"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8765"]
