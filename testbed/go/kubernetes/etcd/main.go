// Command etcd is the etcd server. Its own module path for the main package has to be resolved
// in a go.mod without Kubernetes' replaces, so the test bed links the server from here.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
