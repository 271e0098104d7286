# Wenmai in a container, built from this folder: docs/cookbook/en/docker.md. Only what .dockerignore lists gets in.

FROM node:22-slim AS page
WORKDIR /page
COPY routes/web/package.json routes/web/package-lock.json ./
RUN npm ci --no-audit --no-fund

FROM python:3.11-slim AS build
WORKDIR /srv/wenmai
COPY requirements.lock ./
RUN python -m venv .venv && .venv/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY . .
COPY --from=page /page/node_modules routes/web/node_modules
# Compiled here, because the server cannot write to its folder; readable whatever the umask of the clone was.
RUN .venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation -e . \
    && .venv/bin/pip uninstall --yes pip \
    && .venv/bin/python -m compileall -q . \
    && chmod -R a+rX .

FROM python:3.11-slim
RUN groupadd --gid 10001 wenmai \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin wenmai \
    && install --directory --mode 700 --owner wenmai --group wenmai /data
WORKDIR /srv/wenmai
COPY --from=build /srv/wenmai ./
ENV PATH=/srv/wenmai/.venv/bin:$PATH DATA_DIR=/data HOST=0.0.0.0 PORT=8000
USER 10001:10001
VOLUME /data
EXPOSE 8000
# Not through a proxy, which Docker may have set in the environment.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-c", "import http.client, os, sys; server = http.client.HTTPConnection('127.0.0.1', int(os.environ['PORT']), timeout=4); server.request('GET', '/health/ready'); sys.exit(server.getresponse().status != 200)"]
CMD ["/srv/wenmai/.venv/bin/wenmai", "serve"]
