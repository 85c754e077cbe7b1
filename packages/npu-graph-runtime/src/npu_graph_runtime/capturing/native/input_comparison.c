// Whether the inputs of a replay are those of the capture, in one call.
//
// Tensors are read by torch's C interface for compiled graphs (torch/csrc/inductor/aoti_torch/c/shim.h,
// the same in torch 2.10 to 2.14), whose handle of a tensor is the address of an at::Tensor. Python's
// tensors hold one; at which offset, the caller has found out.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

typedef void *TensorHandle;

int32_t aoti_torch_get_data_ptr(TensorHandle tensor, void **address);
int32_t aoti_torch_get_dtype(TensorHandle tensor, int32_t *dtype);
int32_t aoti_torch_get_dim(TensorHandle tensor, int64_t *dim);
int32_t aoti_torch_get_sizes(TensorHandle tensor, int64_t **sizes);
int32_t aoti_torch_get_strides(TensorHandle tensor, int64_t **strides);

// Of others only the type is compared: a graph has nothing of them in it.
enum { kTensor = 't', kPlain = 'v', kOther = '-' };

// The address and layout of a tensor; sizes and strides are borrowed from whoever holds them.
typedef struct {
  void *address;
  int32_t dtype;
  int64_t dim;
  int64_t *sizes;
  int64_t *strides;
} Place;

typedef struct {
  char kind;
  PyObject *value;  // owned; a plain value, or the type of anything else
  Place place;      // of a tensor; sizes is an allocation of our own, strides follow them
} Input;

// A tensor that no input is on. It may be gone, and then nothing is compared.
typedef struct {
  PyObject *reference;  // owned; weak
  void *address;
} InTurn;

typedef struct {
  Py_ssize_t tensor_offset;
  Py_ssize_t num_inputs;  // -1 where inputs are not compared
  Py_ssize_t num_in_turn;
  Py_ssize_t next_in_turn;
  InTurn *in_turn;  // an allocation of our own
  Input inputs[];
} Baked;

static const char kCapsuleName[] = "npu_graph_runtime.baked_inputs";

static int ReadPlace(const Baked *baked, PyObject *tensor, Place *place) {
  TensorHandle handle = (char *)tensor + baked->tensor_offset;
  return aoti_torch_get_data_ptr(handle, &place->address) == 0 &&
         aoti_torch_get_dtype(handle, &place->dtype) == 0 && aoti_torch_get_dim(handle, &place->dim) == 0 &&
         aoti_torch_get_sizes(handle, &place->sizes) == 0 && aoti_torch_get_strides(handle, &place->strides) == 0;
}

// Few extents, so calls of memcmp would take longer than the comparison.
static int IsSameExtents(const int64_t *now, const int64_t *expected, int64_t dim) {
  for (int64_t index = 0; index < dim; ++index) {
    if (now[index] != expected[index]) return 0;
  }
  return 1;
}

static int IsSameTensor(const Baked *baked, const Place *place, PyObject *value) {
  TensorHandle handle = (char *)value + baked->tensor_offset;
  Place now;
  return aoti_torch_get_data_ptr(handle, &now.address) == 0 && now.address == place->address &&
         aoti_torch_get_dtype(handle, &now.dtype) == 0 && now.dtype == place->dtype &&
         aoti_torch_get_dim(handle, &now.dim) == 0 && now.dim == place->dim &&
         aoti_torch_get_sizes(handle, &now.sizes) == 0 && IsSameExtents(now.sizes, place->sizes, place->dim) &&
         aoti_torch_get_strides(handle, &now.strides) == 0 && IsSameExtents(now.strides, place->strides, place->dim);
}

static int IsSamePlain(const Input *input, PyObject *value) {
  if (value == input->value) return 1;
  if (Py_TYPE(value) != Py_TYPE(input->value)) return 0;
  if (PyFloat_Check(value)) {
    // Zeros have a sign, and NaN is itself.
    double now = PyFloat_AS_DOUBLE(value), expected = PyFloat_AS_DOUBLE(input->value);
    return memcmp(&now, &expected, sizeof now) == 0;
  }
  int is_same = PyObject_RichCompareBool(value, input->value, Py_EQ);
  if (is_same < 0) PyErr_Clear();
  return is_same == 1;
}

static int IsSame(const Baked *baked, const Input *input, PyObject *value) {
  if (input->kind == kPlain) return IsSamePlain(input, value);
  if ((PyObject *)Py_TYPE(value) != input->value) return 0;
  return input->kind == kOther || IsSameTensor(baked, &input->place, value);
}

// Whether the tensor whose turn it is has its address. One that has not keeps its turn.
static int IsNextInPlace(Baked *baked) {
  if (baked->num_in_turn == 0) return 1;
  InTurn *next = &baked->in_turn[baked->next_in_turn];
  int is_in_place = 1;
#if PY_VERSION_HEX >= 0x030D0000
  PyObject *tensor = NULL;
  if (PyWeakref_GetRef(next->reference, &tensor) < 0) PyErr_Clear();
#else
  PyObject *tensor = PyWeakref_GetObject(next->reference);
  tensor = tensor == NULL || tensor == Py_None ? NULL : Py_NewRef(tensor);
#endif
  if (tensor != NULL) {
    void *address;
    is_in_place =
        aoti_torch_get_data_ptr((char *)tensor + baked->tensor_offset, &address) == 0 && address == next->address;
    Py_DECREF(tensor);
  }
  return is_in_place;
}

static void TakeNextTurn(Baked *baked) {
  if (++baked->next_in_turn >= baked->num_in_turn) baked->next_in_turn = 0;
}

// holds(values): values is a tuple; None continues with the next tensor. False requests the full comparison; it is no error.
static PyObject *Holds(PyObject *self, PyObject *values) {
  Baked *baked = PyCapsule_GetPointer(self, kCapsuleName);
  if (baked == NULL) return NULL;
  if (values != Py_None && !IsNextInPlace(baked)) Py_RETURN_FALSE;
  TakeNextTurn(baked);
  if (values == Py_None) Py_RETURN_TRUE;
  if (baked->num_inputs < 0) Py_RETURN_TRUE;
  if (!PyTuple_CheckExact(values)) {
    PyErr_SetString(PyExc_TypeError, "comparing inputs: expected a tuple");
    return NULL;
  }
  if (PyTuple_GET_SIZE(values) != baked->num_inputs) Py_RETURN_FALSE;
  for (Py_ssize_t index = 0; index < baked->num_inputs; ++index) {
    if (!IsSame(baked, &baked->inputs[index], PyTuple_GET_ITEM(values, index))) Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
}

static void FreeBaked(Baked *baked) {
  for (Py_ssize_t index = 0; index < baked->num_inputs; ++index) {
    Py_XDECREF(baked->inputs[index].value);
    PyMem_Free(baked->inputs[index].place.sizes);
  }
  for (Py_ssize_t index = 0; index < baked->num_in_turn; ++index) Py_XDECREF(baked->in_turn[index].reference);
  PyMem_Free(baked->in_turn);
  PyMem_Free(baked);
}

static void FreeCapsule(PyObject *capsule) { FreeBaked(PyCapsule_GetPointer(capsule, kCapsuleName)); }

static int BakeTensor(Baked *baked, Input *input, PyObject *tensor) {
  Place now;
  if (!ReadPlace(baked, tensor, &now)) {
    PyErr_SetString(PyExc_ValueError, "comparing inputs: a tensor has no address, sizes or strides");
    return 0;
  }
  size_t num_bytes = (size_t)now.dim * sizeof(int64_t);
  int64_t *extents = PyMem_Malloc(2 * num_bytes + 1);
  if (extents == NULL) {
    PyErr_NoMemory();
    return 0;
  }
  memcpy(extents, now.sizes, num_bytes);
  memcpy(extents + now.dim, now.strides, num_bytes);
  now.sizes = extents;
  now.strides = extents + now.dim;
  input->place = now;
  return 1;
}

static int BakeInTurn(Baked *baked, PyObject *references, PyObject *addresses) {
  Py_ssize_t num_in_turn = PyTuple_GET_SIZE(references);
  baked->in_turn = PyMem_Calloc(num_in_turn + 1, sizeof(InTurn));
  if (baked->in_turn == NULL) {
    PyErr_NoMemory();
    return 0;
  }
  for (Py_ssize_t index = 0; index < num_in_turn; ++index) {
    PyObject *reference = PyTuple_GET_ITEM(references, index);
    if (!PyWeakref_Check(reference)) {
      PyErr_SetString(PyExc_TypeError, "comparing inputs: expected weak references");
      return 0;
    }
    baked->in_turn[index].address = PyLong_AsVoidPtr(PyTuple_GET_ITEM(addresses, index));
    if (baked->in_turn[index].address == NULL && PyErr_Occurred()) return 0;
    baked->in_turn[index].reference = Py_NewRef(reference);
    baked->num_in_turn = index + 1;
  }
  return 1;
}

static PyMethodDef kHolds = {"holds", Holds, METH_O, "Return whether values are those of the capture."};

// compare(tensor_offset, values, kinds, references, addresses): kinds has a letter for each value, and
// no value is compared where values is None. Returns holds.
static PyObject *Compare(PyObject *module, PyObject *args) {
  (void)module;
  Py_ssize_t tensor_offset, num_kinds;
  PyObject *values, *references, *addresses;
  const char *kinds;
  if (!PyArg_ParseTuple(args, "nOs#O!O!", &tensor_offset, &values, &kinds, &num_kinds, &PyTuple_Type, &references,
                        &PyTuple_Type, &addresses)) {
    return NULL;
  }
  int is_compared = values != Py_None;
  if (is_compared && !PyTuple_Check(values)) {
    PyErr_SetString(PyExc_TypeError, "comparing inputs: expected a tuple");
    return NULL;
  }
  if (PyTuple_GET_SIZE(references) != PyTuple_GET_SIZE(addresses)) {
    PyErr_SetString(PyExc_ValueError, "comparing inputs: expected an address for each reference");
    return NULL;
  }
  if (is_compared && num_kinds != PyTuple_GET_SIZE(values)) {
    PyErr_SetString(PyExc_ValueError, "comparing inputs: expected a kind for each value");
    return NULL;
  }
  Baked *baked = PyMem_Calloc(1, sizeof(Baked) + (size_t)num_kinds * sizeof(Input));
  if (baked == NULL) return PyErr_NoMemory();
  baked->tensor_offset = tensor_offset;
  baked->num_inputs = is_compared ? num_kinds : -1;
  if (!BakeInTurn(baked, references, addresses)) {
    FreeBaked(baked);
    return NULL;
  }
  for (Py_ssize_t index = 0; index < baked->num_inputs; ++index) {
    Input *input = &baked->inputs[index];
    PyObject *value = PyTuple_GET_ITEM(values, index);
    input->kind = kinds[index];
    input->value = Py_NewRef(input->kind == kPlain ? value : (PyObject *)Py_TYPE(value));
    if (input->kind == kTensor && !BakeTensor(baked, input, value)) {
      FreeBaked(baked);
      return NULL;
    }
  }
  PyObject *capsule = PyCapsule_New(baked, kCapsuleName, FreeCapsule);
  if (capsule == NULL) {
    FreeBaked(baked);
    return NULL;
  }
  PyObject *holds = PyCFunction_New(&kHolds, capsule);
  Py_DECREF(capsule);
  return holds;
}

static PyMethodDef kFunctions[] = {
    {"compare", Compare, METH_VARARGS, "Return a function that compares values with these."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef kModule = {PyModuleDef_HEAD_INIT, "input_comparison", NULL, 0, kFunctions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_input_comparison(void) { return PyModule_Create(&kModule); }
