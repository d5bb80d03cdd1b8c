// Runs a declarative Jenkins pipeline with the Groovy that Jenkins embeds (2.4.21), its steps being done here for real.
//
//   java -cp groovy-all.jar groovy.ui.GroovyMain pipeline.groovy JENKINSFILE WORKSPACE SOURCE
//
// In: the file; a workspace (made); a folder that `checkout scm` copies.  Out: what the steps say, a line `did: …` each, and the
// status 1 when the pipeline called `error`.  As Jenkins: values under `environment` are expanded against each other and the
// process's environment before any step sees them; `sh` writes the script to a file and starts it by its own first line.
// What this is not: Jenkins' own parser of declarative pipelines, its sandbox or its CPS.
import java.nio.file.Files

class Failed extends RuntimeException { Failed(String why) { super(why) } }

class Steps {
  Map<String, String> env
  File workspace, source
  Object scm = 'scm'

  void deleteDir() { workspace.deleteDir(); did('deleteDir') }

  void checkout(Object what) {
    workspace.mkdirs()
    source.eachFile { new File(workspace, it.name).bytes = it.bytes }
    did("checkout ${what}")
  }

  Object sh(Map asked) {
    File script = File.createTempFile('script', '.sh')
    script.text = asked.script
    script.executable = true
    ProcessBuilder start = new ProcessBuilder(script.path)
    start.directory(workspace).redirectErrorStream(true)
    start.environment().clear()
    start.environment().putAll(env)
    Process process = start.start()
    process.outputStream.close()
    process.inputStream.eachLine { println it }
    int status = process.waitFor()
    script.delete()
    did("sh ${asked.label}: ${status}")
    if (asked.returnStatus) { return status }
    if (status != 0) { throw new Failed("script returned exit code ${status}") }
  }

  void archiveArtifacts(Map asked) {
    File folder = new File(workspace, asked.artifacts.toString().replace('/**', ''))
    did("archiveArtifacts ${folder.list()?.sort()}")
  }

  void junit(Map asked) { did("junit ${new File(workspace, asked.testResults.toString()).exists()}") }

  void error(Object why) { throw new Failed(why.toString()) }

  void script(Closure body) { inside(body, this) }

  static void did(Object what) { println "did: ${what}" }

  static void inside(Closure body, Object delegate) {
    body.delegate = delegate
    body.resolveStrategy = Closure.DELEGATE_FIRST
    body()
  }
}

class Environment {
  Map<String, String> values = [:]

  void setProperty(String name, Object value) { values[name] = value.toString() }

  String credentials(String id) { "secret of ${id}" }
}

class Pipeline {
  Steps steps
  Object any = 'any'

  void agent(Object where) { Steps.did("agent ${where}") }

  void environment(Closure body) {
    Environment found = new Environment()
    Steps.inside(body, found)
    found.values.each { name, value ->
      String all = value.replaceAll(/\$\{?(\w+)\}?/) { whole, key ->
        found.values[key] ?: steps.env[key] ?: whole
      }
      steps.env[name] = all
    }
  }

  void stages(Closure body) { Steps.inside(body, this) }

  void stage(String name, Closure body) { Steps.did("stage ${name}"); Steps.inside(body, this) }

  void steps(Closure body) { Steps.inside(body, steps) }
}

def (file, workspace, source) = args.collect { new File(it).absoluteFile }
Map<String, String> known = [:] + System.getenv()
known.WORKSPACE = workspace.path
known.WORKSPACE_TMP = "${workspace.path}@tmp".toString()
known.JOB_NAME = known.JOB_NAME ?: 'nightly'
Steps made = new Steps(env: known, workspace: workspace, source: source)
Binding binding = new Binding()
binding.setVariable('pipeline', { Closure body -> Steps.inside(body, new Pipeline(steps: made)) })
try {
  new GroovyShell(this.class.classLoader, binding).evaluate(file)
} catch (Failed why) {
  println "ERROR: ${why.message}"
  System.exit(1)
}
