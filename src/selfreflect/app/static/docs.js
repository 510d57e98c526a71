/** Shows the OpenAPI document: each operation with its parameters, body, answer and errors. */

import { get, takeToken } from "./client.js";
import { element, prose } from "./dom.js";

const METHODS = ["get", "post"];

function resolved(api, schema) {
  const name = schema?.$ref?.split("/").at(-1);
  return name === undefined ? schema : api.components.schemas[name];
}

function typeText(api, schema) {
  if (schema === undefined) return "";
  if (schema.$ref !== undefined) return schema.$ref.split("/").at(-1);
  if (schema.anyOf !== undefined) return schema.anyOf.map((one) => typeText(api, one)).join(" or ");
  if (schema.enum !== undefined) return schema.enum.map((one) => JSON.stringify(one)).join(" | ");
  const limits = ["minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern"].filter((name) => name in schema);
  const inner = schema.items === undefined ? "" : ` of ${typeText(api, schema.items)}`;
  return `${schema.type ?? "any"}${inner}${limits.map((name) => `, ${name} ${schema[name]}`).join("")}`;
}

function fieldTable(api, schema, caption) {
  const body = resolved(api, schema);
  if (body?.properties === undefined) return null;
  const rows = Object.entries(body.properties).map(([name, field]) => {
    const facts = [typeText(api, field)];
    if (field.default !== undefined) facts.push(`default ${JSON.stringify(field.default)}`);
    if (body.required?.includes(name)) facts.push("required");
    return element("tr", {}, element("th", { scope: "row" }, element("code", {}, name)), element("td", {}, `${facts.join("; ")}. ${field.description ?? ""}`));
  });
  return element("table", {}, element("caption", {}, caption), element("tbody", {}, rows));
}

function operation(api, path, method, described) {
  const content = described.requestBody?.content?.["application/json"]?.schema;
  const [status, good] = Object.entries(described.responses).find(([code]) => code.startsWith("2"));
  const answer = good.content?.["application/json"]?.schema;
  const parameters = (described.parameters ?? []).map((one) =>
    element("li", {}, element("code", {}, one.name), ` in ${one.in}: ${typeText(api, one.schema)}`),
  );
  const others = Object.keys(described.responses).filter((code) => !code.startsWith("2"));
  return element(
    "section",
    {},
    element("h2", {}, element("code", {}, `${method.toUpperCase()} ${path}`)),
    element("p", {}, prose(described.summary ?? "")),
    parameters.length > 0 ? element("ul", {}, parameters) : null,
    content ? fieldTable(api, content, "Body") : null,
    answer ? fieldTable(api, answer, `Answer (${status})`) : null,
    element("p", { class: "facts" }, `Errors, as {"error": {"kind", "message"}}: ${others.join(", ")}`),
  );
}

takeToken();
const docs = document.getElementById("docs");
try {
  const api = await get("/api/openapi.json");
  const sections = Object.entries(api.paths).flatMap(([path, methods]) =>
    METHODS.filter((method) => method in methods).map((method) => operation(api, path, method, methods[method])),
  );
  docs.replaceChildren(
    element("p", {}, api.info.description, " Also available as ", element("a", { href: "/api/openapi.json" }, "OpenAPI"), "."),
    ...sections,
  );
} catch (error) {
  docs.replaceChildren(element("p", { class: "problem", role: "alert" }, error.message));
}
