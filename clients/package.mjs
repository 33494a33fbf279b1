/** Builds dist/obsidian, a folder to copy, and dist/retriever.vsix, a file to install. */

import { copyFile, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";
import { zipSync } from "fflate";

const ROOT = fileURLToPath(new URL(".", import.meta.url));
// A constant, so that equal sources make an equal file.
const MTIME = new Date(2020, 0, 1);

/** Build both clients into a folder, and return the paths of what is installed. */
export async function packageClients(dist) {
  const obsidian = join(dist, "obsidian");
  await rm(dist, { recursive: true, force: true });
  await mkdir(obsidian, { recursive: true });
  await writeFile(join(obsidian, "main.js"), await bundle("obsidian/main.ts", "obsidian"));
  await copyFile(join(ROOT, "obsidian/manifest.json"), join(obsidian, "manifest.json"));
  await copyFile(join(ROOT, "shared/panel.css"), join(obsidian, "styles.css"));
  const vsix = join(dist, "retriever.vsix");
  await writeFile(vsix, await packExtension());
  return { obsidian, vsix };
}

/** Return a script with all that it imports, except the module of its editor. */
async function bundle(entry, editor) {
  const { outputFiles } = await build({
    entryPoints: [join(ROOT, entry)],
    bundle: true,
    write: false,
    target: "es2022",
    format: editor ? "cjs" : "iife",
    platform: editor === "vscode" ? "node" : "browser",
    external: editor ? [editor] : [],
  });
  return outputFiles[0].contents;
}

/** Return the bytes of a VSIX: a zip with the extension and two manifests. */
async function packExtension() {
  const read = (path) => readFile(join(ROOT, path));
  const manifest = await read("vscode/package.json");
  const text = (content) => new TextEncoder().encode(content);
  const files = {
    "[Content_Types].xml": text(CONTENT_TYPES),
    "extension.vsixmanifest": text(vsixManifest(JSON.parse(manifest))),
    "extension/package.json": manifest,
    "extension/extension.js": await bundle("vscode/extension.ts", "vscode"),
    "extension/webview.js": await bundle("vscode/webview_main.ts", ""),
    "extension/panel.css": await read("shared/panel.css"),
    "extension/icon.svg": await read("vscode/icon.svg"),
    "extension/readme.md": await read("README.md"),
    "extension/LICENSE.txt": await read("../LICENSE"),
  };
  return zipSync(files, { mtime: MTIME });
}

const CONTENT_TYPES = `<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
  <Default Extension=".css" ContentType="text/css"/>
  <Default Extension=".js" ContentType="application/javascript"/>
  <Default Extension=".json" ContentType="application/json"/>
  <Default Extension=".md" ContentType="text/markdown"/>
  <Default Extension=".svg" ContentType="image/svg+xml"/>
  <Default Extension=".txt" ContentType="text/plain"/>
  <Default Extension=".vsixmanifest" ContentType="text/xml"/>
</Types>
`;

/** Return the manifest as vsce 3.9 writes it; the values hold no characters to escape. */
function vsixManifest(extension) {
  const { name, version, publisher, displayName, description, keywords, categories } = extension;
  const property = (id, value) =>
    `<Property Id="Microsoft.VisualStudio.Code.${id}" Value="${value}"/>`;
  const asset = (type, path) =>
    `<Asset Type="Microsoft.VisualStudio.${type}" Path="extension/${path}" Addressable="true"/>`;
  return `<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
  <Metadata>
    <Identity Language="en-US" Id="${name}" Version="${version}" Publisher="${publisher}"/>
    <DisplayName>${displayName}</DisplayName>
    <Description xml:space="preserve">${description}</Description>
    <Tags>${keywords.join(",")}</Tags>
    <Categories>${categories.join(",")}</Categories>
    <GalleryFlags>Public</GalleryFlags>
    <Properties>
      ${property("Engine", extension.engines.vscode)}
      ${property("ExtensionDependencies", "")}
      ${property("ExtensionPack", "")}
      ${property("ExtensionKind", extension.extensionKind.join(","))}
      ${property("LocalizedLanguages", "")}
      ${property("ExecutesCode", "true")}
    </Properties>
    <License>extension/LICENSE.txt</License>
  </Metadata>
  <Installation>
    <InstallationTarget Id="Microsoft.VisualStudio.Code"/>
  </Installation>
  <Dependencies/>
  <Assets>
    ${asset("Code.Manifest", "package.json")}
    ${asset("Services.Content.Details", "readme.md")}
    ${asset("Services.Content.License", "LICENSE.txt")}
  </Assets>
</PackageManifest>
`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { obsidian, vsix } = await packageClients(join(ROOT, "dist"));
  console.log(`${obsidian}\n${vsix}`);
}
