"""Names that a hostile pickle may ask for: each runs code, reads, writes, connects or imports.

One line a module, then the names in it. They are data: nothing here is ever looked up.
"""

NAMES = """
os: system popen execv execve execl execlp execvp spawnl spawnv spawnve posix_spawn fork remove
os: unlink rename rmdir removedirs chmod putenv kill startfile open
posix: system popen execv fork
nt: system startfile
builtins: eval exec compile open getattr setattr delattr __import__ globals locals vars input
builtins: breakpoint map filter apply type object memoryview help exit
__builtin__: eval exec execfile compile file getattr reduce apply
__main__: __builtins__
subprocess: Popen run call check_call check_output getoutput getstatusoutput
sys: exit setrecursionlimit modules settrace addaudithook
importlib: import_module reload
importlib._bootstrap: _load
imp: load_source load_module
runpy: run_path run_module _run_code
code: InteractiveInterpreter InteractiveConsole interact
codeop: compile_command
pty: spawn
pdb: run runeval set_trace Pdb
bdb: Bdb Bdb.run
profile: run Profile.runctx
cProfile: run runctx
trace: Trace
timeit: timeit repeat Timer
doctest: debug_script
cgitb: lookup
idlelib.pyshell: ModifiedInterpreter.runcode
idlelib.autocomplete: AutoComplete.get_entity
idlelib.calltip: get_entity
idlelib.run: Executive.runcode
lib2to3.pgen2.grammar: Grammar.loads
lib2to3.pgen2.pgen: ParserGenerator.make_label
ctypes: CDLL WinDLL PyDLL cdll windll pythonapi string_at memmove
ctypes.util: find_library
_ctypes: dlopen
socket: socket create_connection create_server
ssl: SSLContext
urllib.request: urlopen urlretrieve build_opener
http.client: HTTPConnection HTTPSConnection
ftplib: FTP
smtplib: SMTP
telnetlib: Telnet
xmlrpc.client: ServerProxy
webbrowser: open open_new get
asyncio: run create_subprocess_shell
asyncio.unix_events: _UnixSubprocessTransport._start
multiprocessing: Process
multiprocessing.util: spawnv_passfds
concurrent.futures: ProcessPoolExecutor
threading: Thread
signal: signal raise_signal
shutil: rmtree move copyfile copy unpack_archive make_archive
pathlib: Path Path.write_text Path.unlink PosixPath
tempfile: NamedTemporaryFile mkdtemp
io: open FileIO open_code
zipfile: ZipFile PyZipFile
tarfile: open TarFile
sqlite3: connect
dbm: open
shelve: open DbfilenameShelf
pickle: loads load Unpickler _Unpickler
_pickle: loads load Unpickler
cPickle: loads load
dill: loads load
cloudpickle: loads load
joblib: load
marshal: loads load
yaml: load unsafe_load
jsonpickle: decode
copyreg: _reconstructor __newobj__ add_extension
copy_reg: _reconstructor
functools: partial reduce
operator: attrgetter itemgetter methodcaller
itertools: starmap
types: CodeType FunctionType LambdaType
inspect: getattr_static
ast: literal_eval
site: addsitedir execsitecustomize
venv: create EnvBuilder
ensurepip: bootstrap _run_pip
pip: main
pip._internal: main
pkgutil: resolve_name get_data
pydoc: pipepager locate
aifc: open
logging.config: fileConfig dictConfig
linecache: getline
platform: popen
commands: getoutput
distutils.file_util: write_file
distutils.spawn: spawn
setuptools.sandbox: run_setup
numpy: load fromfile memmap save tofile
numpy.core.multiarray: _reconstruct scalar
numpy._core.multiarray: _reconstruct
numpy.testing._private.utils: runstring
numpy.testing: runstring measure
numpy.f2py.crackfortran: getlincoef _eval_length
numpy.f2py.capi_maps: load_f2cmap_file
numpy.distutils.exec_command: exec_command
pandas: eval read_pickle
pandas.io.common: get_handle
scipy.io: loadmat
torch: load hub save compile classes ops UntypedStorage
torch.hub: load load_state_dict_from_url _load_local
torch.jit: load script trace
torch.jit.unsupported_tensor_ops: execWrapper
torch.serialization: load
torch.storage: _load_from_bytes UntypedStorage TypedStorage
torch._utils: _rebuild_tensor _rebuild_qtensor _rebuild_device_tensor_from_numpy _import_dotted_name
torch._tensor: _rebuild_from_type_v2
torch.nn.modules.container: Sequential
torch.nn.modules.module: Module
torch.utils._config_module: load_config
torch.utils.bottleneck.__main__: run_cprofile run_autograd_prof
torch.utils.collect_env: run
torch.utils.data.datapipes.utils.decoder: basichandlers
torch.utils.cpp_extension: load load_inline
torch._inductor.codecache: compile_file
torch._dynamo.guards: GuardBuilder.get
torch.fx.experimental.symbolic_shapes: ShapeEnv.evaluate_guards_expression
torch.fx._symbolic_trace: Tracer
torch.fx.graph_module: reduce_graph_module _exec_with_source
torch.package: PackageImporter
torch.distributed.rpc: rpc_sync
torch.multiprocessing: spawn
torchvision.datasets.utils: download_url
tensorflow: io.write_file
keras.models: load_model
keras.layers: Lambda
transformers: pipeline AutoModel.from_pretrained
transformers.dynamic_module_utils: get_class_in_module
huggingface_hub: hf_hub_download
omegaconf.dictconfig: DictConfig
hydra.utils: instantiate call
argparse: Namespace
collections: defaultdict Counter namedtuple UserDict
requests: get post
requests.api: get
aiohttp.client: ClientSession
uvicorn: run
fsspec: open
boto3: client
paramiko: SSHClient
wandb: init
ray: init
sympy: sympify lambdify
gradio: Interface
IPython: embed start_ipython
"""


def gadgets() -> list[tuple[str, str]]:
    """Every (module, name), once."""
    pairs: dict[tuple[str, str], None] = {}
    for line in NAMES.strip().splitlines():
        module, _, names = line.partition(":")
        pairs.update(dict.fromkeys((module, name) for name in names.split()))
    return list(pairs)
