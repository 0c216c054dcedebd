// Preloaded by `larder exec` into Node before 22.21 and 24, whose fetch() heeds no proxy variables.
// Requests to https:// go through a tunnel of the proxy, those to http:// to the proxy itself. It is set up at the
// first fetch().
'use strict';
const proxy = process.env.https_proxy && new URL(process.env.https_proxy);
const hasOwnWay = process.allowedNodeEnvironmentFlags.has('--use-env-proxy');
const fetchOfNode = globalThis.fetch;
const direct = new Set((process.env.no_proxy || '').split(',').map((name) => name.trim()).filter(Boolean));
const dispatcherKey = Symbol.for('undici.globalDispatcher.1');

// Makes a connection to `options.host`, by way of the proxy unless the environment excepts the host.
function connect(options, callback) {
  const secure = options.protocol === 'https:';
  const port = Number(options.port) || (secure ? 443 : 80);
  const host = options.hostname.replace(/^\[|\]$/g, '');
  const once = (error, socket) => { const call = callback; callback = () => {}; call(error, socket); };
  const encrypt = (socket) => {
    const name = require('net').isIP(host) ? undefined : options.servername || host;
    const stream = require('tls').connect({ socket, host, servername: name, ALPNProtocols: ['http/1.1'] });
    stream.once('secureConnect', () => once(null, stream)).once('error', once);
  };
  if (direct.has(host)) {
    const socket = require('net').connect({ host, port });
    socket.once('connect', () => (secure ? encrypt(socket) : once(null, socket))).once('error', once);
    return;
  }
  const target = `${host.includes(':') ? `[${host}]` : host}:${port}`;
  const request = require('http').request({
    host: proxy.hostname, port: proxy.port, method: 'CONNECT', path: target, headers: { host: target }, agent: false,
  });
  request.once('error', once).once('connect', (response, socket) => {
    if (response.statusCode !== 200) {
      socket.destroy();
      once(new Error(`the proxy answers CONNECT ${target} with ${response.statusCode}`));
    } else if (secure) {
      encrypt(socket);
    } else {
      once(null, socket);
    }
  }).end();
}

// Gives undici's global dispatcher our way of connecting. Its class is not exported, but its instance is there once it
// was loaded.
function install() {
  void globalThis.Response;
  const before = globalThis[dispatcherKey];
  // A program that has set a dispatcher of its own keeps it.
  if (!before || before.constructor.name !== 'Agent') return;
  const Agent = before.constructor;
  class ProxiedAgent extends Agent {
    dispatch(options, handler) {
      const origin = new URL(options.origin);
      if (origin.protocol !== 'http:' || direct.has(origin.hostname)) return super.dispatch(options, handler);
      // In absolute form, as a request to a proxy.
      const path = origin.origin + options.path;
      const headers = withHost(options.headers, origin.host);
      return super.dispatch({ ...options, origin: proxy.origin, path, headers }, handler);
    }
  }
  direct.add(proxy.hostname);
  globalThis[dispatcherKey] = new ProxiedAgent({ connect });
}

function withHost(headers, host) {
  if (Array.isArray(headers)) return [...headers, 'host', host];
  return { ...headers, host };
}

if (proxy && proxy.protocol === 'http:' && !hasOwnWay && typeof fetchOfNode === 'function') {
  let isInstalled = false;
  globalThis.fetch = function fetch(input, init = undefined) {
    if (!isInstalled) {
      isInstalled = true;
      install();
    }
    return fetchOfNode(input, init);
  };
}
