// Finds the command, starts its language server and shows what its commands return.  No analysis here.

import * as vscode from "vscode";
import {
  ExecuteCommandSignature,
  LanguageClient,
  LanguageClientOptions,
  ServerOptions,
} from "vscode-languageclient/node";

const SCHEME = "mdh-lift"; // of pages with explanations: mdh-lift:/codes/MDH203.md
const SHOWN = ["mdhLift.show", "mdhLift.explain"]; // commands whose result is a page

let client: LanguageClient | undefined;
const pages = new Map<string, string>();

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  context.subscriptions.push(
    vscode.workspace.registerTextDocumentContentProvider(SCHEME, { provideTextDocumentContent: pageAt }),
    vscode.commands.registerCommand("mdhLift.restartServer", restart),
    vscode.workspace.onDidGrantWorkspaceTrust(restart),
    vscode.workspace.onDidChangeConfiguration((e) => (e.affectsConfiguration("mdhLift") ? restart() : undefined)),
  );
  await start();
}

export async function deactivate(): Promise<void> {
  await client?.stop();
}

async function restart(): Promise<void> {
  await client?.stop().catch(() => undefined);
  client = undefined;
  await start();
}

async function start(): Promise<void> {
  const settings = vscode.workspace.getConfiguration("mdhLift");
  const command = settings.get<string>("path") || "mdh-lift";
  const server: ServerOptions = { command, args: ["lsp"] };
  const options: LanguageClientOptions = {
    documentSelector: [
      { scheme: "file", language: "c" },
      { scheme: "file", language: "python" },
    ],
    initializationOptions: {
      trusted: vscode.workspace.isTrusted,
      inlayHints: settings.get<boolean>("inlayHints", true),
      codeLens: settings.get<boolean>("codeLens", true),
      showsResults: true,
    },
    middleware: { executeCommand: run },
  };
  client = new LanguageClient("mdhLift", "mdh-lift", server, options);
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    const help = `The command \`${command}\` did not start. Install it with: pip install 'mdh-lift[lsp]'`;
    const open = "Open settings";
    if ((await vscode.window.showErrorMessage(`${help} (${String(error)})`, open)) === open) {
      await vscode.commands.executeCommand("workbench.action.openSettings", "mdhLift.path");
    }
  }
}

/** Commands of the server; those that answer with a text show it as a page. */
async function run(command: string, args: unknown[], next: ExecuteCommandSignature): Promise<unknown> {
  const result: unknown = await next(command, args);
  if (SHOWN.includes(command) && typeof result === "string") {
    const name = String(args[args.length - 1]).replace(/[^\w.-]+/g, "-");
    const uri = vscode.Uri.from({ scheme: SCHEME, path: `/${name}.md` });
    pages.set(uri.path, result);
    changed.fire(uri);
    await vscode.commands.executeCommand("markdown.showPreview", uri);
  }
  return result;
}

const changed = new vscode.EventEmitter<vscode.Uri>();

/** The text of a page: what a command returned, or the explanation of a code. */
async function pageAt(uri: vscode.Uri): Promise<string> {
  const known = pages.get(uri.path);
  const code = /^\/codes\/(MDH\d{3})\.md$/.exec(uri.path);
  if (known !== undefined || code === null) {
    return known ?? "";
  }
  const request = { command: "mdhLift.explain", arguments: [code[1]] };
  return String((await client?.sendRequest("workspace/executeCommand", request)) ?? "The server does not run.");
}
