// Prints the name in hex, size and SHA-256 of each file in a tar shard, as Go's standard library reads it.
package main

import (
	"archive/tar"
	"compress/bzip2"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	file, err := os.Open(os.Args[1])
	check(err)
	var stream io.Reader = file
	if strings.HasSuffix(os.Args[1], ".gz") {
		stream, err = gzip.NewReader(file)
		check(err)
	} else if strings.HasSuffix(os.Args[1], ".bz2") {
		stream = bzip2.NewReader(file)
	}
	archive := tar.NewReader(stream)
	for {
		header, err := archive.Next()
		if err == io.EOF {
			return
		}
		check(err)
		sum := sha256.New()
		if header.Size < 1<<30 {
			_, err = io.Copy(sum, archive)
			check(err)
		}
		fmt.Printf("%x %d %x\n", header.Name, header.Size, sum.Sum(nil))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
