# A server for many clients over HTTP. docs/deployment.md shows how to run it.
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY deep_agent_mcp/__init__.py deep_agent_mcp/__main__.py deep_agent_mcp/py.typed deep_agent_mcp/
COPY harness harness
COPY server server
COPY skills skills
ARG EXTRAS=postgres,redis,encryption,telemetry,search
RUN python -m venv /opt/agent && /opt/agent/bin/pip install --no-cache-dir ".[$EXTRAS]"

FROM python:3.13-slim
# Threads, tokens and keys are in /data, which only this user may read.
RUN useradd --uid 10001 --user-group --create-home agent && install -d -m 0700 -o agent -g agent /data
COPY --from=build /opt/agent /opt/agent
ENV PATH=/opt/agent/bin:$PATH \
    DEEP_AGENT_TRANSPORT=http \
    DEEP_AGENT_HOST=0.0.0.0 \
    DEEP_AGENT_PORT=8000 \
    DEEP_AGENT_STATE_DIR=/data
USER 10001:10001
VOLUME /data
EXPOSE 8000
# The server finishes the steps of its runs first, within DEEP_AGENT_DRAIN_SECONDS.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["deep-agent-mcp"]
CMD ["serve"]
