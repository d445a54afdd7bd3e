// Node 20 lacks what canvas-js uses; Node 22 has it.
Promise.withResolvers ??= function () {
  let resolve, reject
  const promise = new this((onResolve, onReject) => {
    resolve = onResolve
    reject = onReject
  })
  return { promise, resolve, reject }
}
