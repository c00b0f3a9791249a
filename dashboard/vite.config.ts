import { gzipSync } from 'node:zlib';
import { defineConfig, type Plugin } from 'vite';

/** Beside each file of text the same, packed: the api serves it to whoever can unpack it. */
function packed(): Plugin {
  return {
    name: 'packed',
    generateBundle: {
      order: 'post',
      handler(_, bundle) {
        for (const file of Object.values(bundle)) {
          if (!/\.(js|css|svg)$/.test(file.fileName)) continue;
          const source = gzipSync(file.type === 'chunk' ? file.code : file.source, { level: 9 });
          this.emitFile({ type: 'asset', fileName: `${file.fileName}.gz`, source });
        }
      },
    },
  };
}

export default defineConfig({
  base: '/ui/',
  plugins: [packed()],
  build: {
    target: 'es2023',
    // nothing inline: the page's policy forbids it
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 1000,
  },
});
