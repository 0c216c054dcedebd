// Results of http-cache-tests beside the page that names what does not pass. Exits 0 if the two agree.
import fs from 'node:fs'

const [suite, resultsPath, pagePath] = process.argv.slice(2)
const { default: suites } = await import(`${suite}/tests/index.mjs`)
const { default: surrogate } = await import(`${suite}/tests/surrogate-control.mjs`)
const results = JSON.parse(fs.readFileSync(resultsPath, 'utf8'))
const named = new Set([...fs.readFileSync(pagePath, 'utf8').matchAll(/^\| `([^`]+)`/gm)].map(match => match[1]))

const tests = new Map([...suites, surrogate].flatMap(group => group.tests.map(test => [test.id, test])))
const outcome = id => {
  const test = tests.get(id)
  const result = results[id]
  if (result === undefined) return 'not run'
  if ((test.depends_on ?? []).some(other => outcome(other) !== 'passed')) return 'depends on what failed'
  return result === true ? 'passed' : 'failed'
}

const counts = {}
const lines = []
let agreed = true
for (const [id, test] of tests) {
  if (test.browser_only) continue
  const kind = test.kind ?? 'required'
  const result = outcome(id)
  counts[kind] ??= {}
  counts[kind][result] = (counts[kind][result] ?? 0) + 1
  if (result !== 'passed') lines.push(`${kind.padEnd(8)} ${result}: ${id}: ${(results[id]?.[1] ?? '').slice(0, 120)}`)
  if (kind === 'check' || (result !== 'passed') === named.has(id)) continue
  agreed = false
  lines.push(`NOT AS NAMED: ${id} ${result}`)
}
console.log(lines.sort().join('\n'))
console.log(JSON.stringify(counts))
process.exitCode = agreed ? 0 : 1
