// The client: starts `upl lsp` for documents in UPL, and says so where the command is not found.
'use strict';
const vscode = require('vscode');
const {LanguageClient} = require('vscode-languageclient/node');

let client;

async function start() {
  const [command, ...args] = vscode.workspace.getConfiguration('upl').get('server');
  client = new LanguageClient('upl', 'UPL', {command, args}, {documentSelector: [{language: 'upl'}]});
  try {
    await client.start();
  } catch (error) {
    const help = "install it with pip install 'upl-mlir[lsp]', or name it in the setting upl.server";
    vscode.window.showErrorMessage(`UPL: \`${command} ${args.join(' ')}\` does not start: ${help} (${error.message})`);
  }
}

async function stop() {
  const running = client;
  client = undefined;
  if (running && running.needsStop()) await running.stop();
}

async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand('upl.restart', async () => { await stop(); await start(); }),
    vscode.workspace.onDidChangeConfiguration(async e => {
      if (e.affectsConfiguration('upl.server')) { await stop(); await start(); }
    }),
  );
  await start();
}

module.exports = {activate, deactivate: stop};
